// Fields of specifications from Python, and what they point to.
#pragma once
#include "stage/norm_operation.h"
#include "bindings/stage_spec.h"

namespace helm {

// Throws KeyError for a field that is missing.
py::object field(const py::dict& fields, const char* name);
size_t count_at(const py::dict& fields, const char* name, long long least = 1);
// `absent` where the field is missing or None, here and below.
size_t count_or(const py::dict& fields, const char* name, size_t absent);
bool flag_at(const py::dict& fields, const char* name);  // false where it is missing
float number_or(const py::dict& fields, const char* name, float absent);
std::string text_at(const py::dict& fields, const char* name);
// Whether a field is there, and not None.
bool has(const py::dict& fields, const char* name);
// The names of what an operation reads, as many as `widths`, with these; and of what it leaves.
std::vector<Value> reads(const py::dict& fields, const std::vector<size_t>& widths);
std::vector<Value> leaves(const py::dict& fields, size_t width);

template <class Enum>
Enum choice_at(const py::dict& fields, const char* name, const std::vector<std::pair<const char*, Enum>>& choices) {
  const auto value = text_at(fields, name);
  for (const auto& [text, choice] : choices)
    if (value == text) return choice;
  throw py::value_error(std::string(name) + " has no choice '" + value + "'");
}

NormKind norm_kind_at(const py::dict& fields);
Activation activation_at(const py::dict& fields);

// Takes what specifications point to into the keeping of a ParsedSpec.
class Keeper {
 public:
  explicit Keeper(ParsedSpec& parsed) : parsed_(parsed) {}

  StageSpec& spec() const { return parsed_.spec; }
  // The f32 buffer of a field, or null when it is None or missing.
  const float* floats(const py::dict& fields, const char* name, size_t count);
  const Buffer& keep(const py::object& value);
  // A buffer with room for the product of `factors` for every sequence.
  const Buffer& sized(const char* name, const py::object& value, std::initializer_list<size_t> factors);
  Matrix matrix(const std::string& name, const py::dict& fields);
  std::optional<Matrix> optional_matrix(const std::string& name, const py::object& value);
  // Scale and shift of `width` values with a kind and an epsilon of their own, or the operation's; nothing where
  // `value` is None.
  std::optional<NormWeights> norm(const py::dict& operation, const std::string& name, const py::object& value,
                                  size_t width);

 private:
  ParsedSpec& parsed_;
};

// Fills spec.operations from the list of operations. `format`: of caches; `attention`: what attention of prompts
// multiplies.
void parse_operations(Keeper keeper, const py::list& operations, Format format, Activations attention);

}  // namespace helm
