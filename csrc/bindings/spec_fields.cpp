#include "bindings/spec_fields.h"

#include "formats/shape.h"

namespace helm {

py::object field(const py::dict& fields, const char* name) {
  if (!fields.contains(name)) throw py::key_error(name);
  return fields[name];
}

size_t count_at(const py::dict& fields, const char* name, long long least) {
  return count_of(name, field(fields, name).cast<long long>(), least);
}

size_t count_or(const py::dict& fields, const char* name, size_t absent) {
  if (!fields.contains(name) || fields[name].is_none()) return absent;
  return count_at(fields, name, 0);
}

bool flag_at(const py::dict& fields, const char* name) { return fields.contains(name) && fields[name].cast<bool>(); }

float number_or(const py::dict& fields, const char* name, float absent) {
  return fields.contains(name) && !fields[name].is_none() ? fields[name].cast<float>() : absent;
}

std::string text_at(const py::dict& fields, const char* name) { return field(fields, name).cast<std::string>(); }

bool has(const py::dict& fields, const char* name) { return fields.contains(name) && !fields[name].is_none(); }

std::vector<Value> reads(const py::dict& fields, const std::vector<size_t>& widths) {
  const auto names = field(fields, "inputs").cast<std::vector<std::string>>();
  if (names.size() != widths.size())
    throw py::value_error(text_at(fields, "name") + " has " + std::to_string(names.size()) + " inputs, not " +
                          std::to_string(widths.size()));
  std::vector<Value> found;
  for (size_t i = 0; i < names.size(); ++i) found.push_back({names[i], widths[i]});
  return found;
}

std::vector<Value> leaves(const py::dict& fields, size_t width) { return {{text_at(fields, "output"), width}}; }

NormKind norm_kind_at(const py::dict& fields) {
  return choice_at<NormKind>(fields, "norm", {{"rms", NormKind::rms}, {"layer", NormKind::layer}});
}

Activation activation_at(const py::dict& fields) { return activation_of(text_at(fields, "activation")); }

const float* Keeper::floats(const py::dict& fields, const char* name, size_t count) {
  if (!fields.contains(name) || fields[name].is_none()) return nullptr;
  parsed_.views.push_back(
      std::make_unique<View>(name, py::object(fields[name]).cast<py::buffer>(), count, sizeof(float), false));
  return static_cast<const float*>(parsed_.views.back()->data());
}

const Buffer& Keeper::keep(const py::object& value) {
  parsed_.buffers.push_back(value.cast<const Buffer&>());
  return parsed_.buffers.back();
}

const Buffer& Keeper::sized(const char* name, const py::object& value, std::initializer_list<size_t> factors) {
  const Buffer& buffer = keep(value);
  expect_size(name, buffer, product({parsed_.spec.batch, product(factors)}));
  return buffer;
}

Matrix Keeper::matrix(const std::string& name, const py::dict& fields) {
  Matrix m = matrix_of(name.c_str(), keep(field(fields, "weight")), text_at(fields, "format"),
                       field(fields, "rows").cast<long long>(), field(fields, "columns").cast<long long>());
  field(fields, "bias");
  m.bias = floats(fields, "bias", m.rows);
  m.first = count_or(fields, "first", 0);
  if (fields.contains("activations")) m.activations = activations_of(text_at(fields, "activations"));
  return m;
}

std::optional<Matrix> Keeper::optional_matrix(const std::string& name, const py::object& value) {
  if (value.is_none()) return std::nullopt;
  return matrix(name, value.cast<py::dict>());
}

std::optional<NormWeights> Keeper::norm(const py::dict& operation, const std::string& name, const py::object& value,
                                        size_t width) {
  if (value.is_none()) return std::nullopt;
  const auto fields = value.cast<py::dict>();
  field(fields, "weight"), field(fields, "bias");
  const py::dict& facts = fields.contains("norm") ? fields : operation;
  const NormWeights weights{norm_kind_at(facts), field(facts, "eps").cast<float>(), floats(fields, "weight", width),
                            floats(fields, "bias", width)};
  if (weights.weight == nullptr) throw py::value_error(name + " needs a weight");
  return weights;
}

}  // namespace helm
