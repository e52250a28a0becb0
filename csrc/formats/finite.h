// Whether stored values are numbers: a weight that is none, or infinite, makes every token of a model nonsense.
#pragma once
#include <type_traits>

#include "formats/format.h"

namespace helm {

// The exponent of what is no number, as bits of a plain format.
static constexpr uint32_t exponent_of(Format format) {
  return format == Format::f32 ? 0x7f800000u : format == Format::f16 ? 0x7c00u : 0x7f80u;
}

// Whether no value has an exponent of ones only: the largest exponent is looked at, many values at once.
template <class Bits>
static inline bool finite_values(const Bits* values, size_t count, Bits exponent) {
  using Signed = std::make_signed_t<Bits>;
  Signed most = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto own = static_cast<Signed>(values[i] & exponent);
    most = own > most ? own : most;
  }
  return most != static_cast<Signed>(exponent);
}

// Row-major rows of `columns` values, quantised ones as blocks (blocks.h), of which the scales are looked at.
bool finite(const void* rows, Format format, size_t count, size_t columns);

}  // namespace helm
