#include <cstdint>
#include <iterator>

#include "formats/shape.h"
#include "bindings/bindings.h"

namespace helm {

size_t count_of(const char* name, long long value, long long least) {
  if (value < least || value > kLargest)
    throw py::value_error(std::string(name) + " must be between " + std::to_string(least) + " and " +
                          std::to_string(kLargest) + ", not " + std::to_string(value));
  return static_cast<size_t>(value);
}

namespace {

// Among the first `count` formats.
Format named_format(const std::string& name, size_t count) {
  std::string known;
  for (size_t i = 0; i < count; ++i) {
    if (name == kFormats[i].name) return static_cast<Format>(i);
    known += std::string(i == 0 ? "" : ", ") + kFormats[i].name;
  }
  throw py::value_error("unknown format '" + name + "'; choose from " + known);
}

}  // namespace

Format format_of(const std::string& name) { return named_format(name, 3); }

Format stored_format_of(const std::string& name) { return named_format(name, std::size(kFormats)); }

void expect_columns(Format format, size_t columns) {
  if (!divides(format, columns))
    throw py::value_error(std::string(facts_of(format).name) + " has blocks of " +
                          std::to_string(facts_of(format).columns) + " columns, which do not divide " +
                          std::to_string(columns));
}

Activations activations_of(const std::string& name) {
  if (name == "f32") return Activations::f32;
  if (name == "bf16") return Activations::bf16;
  if (name == "int16") return Activations::int16;
  if (name == "int8") return Activations::int8;
  throw py::value_error("activations must be f32, bf16, int16 or int8");
}

Activations attention_activations_of(const std::string& name) {
  if (name == "f32" || name == "bf16" || name == "int16") return activations_of(name);
  throw py::value_error("activations of attention must be f32, bf16 or int16");
}

Format kv_format_of(const std::string& name) {
  if (name == "q8_0") return Format::q8_0;
  if (name == "f32" || name == "f16" || name == "bf16") return format_of(name);
  throw py::value_error("unknown KV format '" + name + "'; choose from f32, f16, bf16, q8_0");
}

View::View(const char* what, const py::buffer& buffer, size_t count, size_t element, bool writable)
    : info_(buffer.request(writable)) {
  py::ssize_t packed = info_.itemsize;
  for (size_t i = info_.shape.size(); i-- > 0; packed *= info_.shape[i])
    if (info_.shape[i] > 1 && info_.strides[i] != packed)
      throw py::value_error(std::string(what) + " must be contiguous");
  const size_t size = static_cast<size_t>(info_.size * info_.itemsize), needed = product({count, element});
  if (size < needed)
    throw py::value_error(std::string(what) + " has " + std::to_string(size) + " bytes, needs " +
                          std::to_string(needed));
  if (reinterpret_cast<uintptr_t>(info_.ptr) % element != 0)
    throw py::value_error(std::string(what) + " must be aligned to " + std::to_string(element) + " bytes");
}

void expect_size(const char* what, const Buffer& buffer, size_t size) {
  if (buffer.size < size)
    throw py::value_error(std::string(what) + " has " + std::to_string(buffer.size) + " bytes, needs " +
                          std::to_string(size));
}

void expect_range(const char* what, const Buffer& buffer, size_t offset, size_t size) {
  if (offset > buffer.size || size > buffer.size - offset)
    throw py::value_error(std::string(what) + " has " + std::to_string(buffer.size) + " bytes; " +
                          std::to_string(size) + " from offset " + std::to_string(offset) + " do not fit");
}

Times::Times(const py::object& times) {
  if (times.is_none()) return;
  const auto drop = [](View* kept) {  // passes that let go of what is done do not hold the GIL
    const py::gil_scoped_acquire acquire;
    delete kept;
  };
  view = std::shared_ptr<View>(new View("times", times.cast<py::buffer>(), 2, sizeof(double), true), drop);
  data = static_cast<double*>(view->data());
}

Events events_of(const std::vector<std::shared_ptr<Event>>& events) {
  for (const auto& event : events)
    if (!event) throw py::value_error("wait must hold events only");
  return events;
}

Matrix matrix_of(const char* what, const Buffer& weights, const std::string& format, long long rows,
                 long long columns) {
  Matrix m;
  m.format = stored_format_of(format);
  m.rows = count_of("rows", rows);
  m.columns = count_of("columns", columns);
  expect_columns(m.format, m.columns);
  m.weights = weights.data;
  expect_size(what, weights, packed_size(m.format, m.rows, m.columns));
  return m;
}

}  // namespace helm
