#include "pack.h"

#include "kernels.h"

namespace helm {
namespace {

constexpr size_t kStrip = 64;  // columns per strip: 16 rows of it stay in L1 while they are interleaved

float widen_one(uint32_t bits, Format format) {
  if (format == Format::f32) return float_of(bits);
  const uint16_t half = static_cast<uint16_t>(bits);
  return format == Format::f16 ? widen_f16(half) : widen_bf16(half);
}

uint32_t narrow_one(float value, Format format) {
  if (format == Format::f32) return bits_of(value);
  return format == Format::f16 ? narrow_f16(value) : narrow_bf16(value);
}

template <class Source, class Target, class Convert>
void pack_as(const Source* source, Target* target, size_t rows, size_t columns, const Convert& convert) {
  for (size_t first = 0; first < rows; first += kPanel, target += columns * kPanel) {
    const size_t count = rows - first < kPanel ? rows - first : kPanel;
    if (count < kPanel) memset(target, 0, columns * kPanel * sizeof(Target));
    for (size_t k0 = 0; k0 < columns; k0 += kStrip) {
      const size_t k1 = columns - k0 < kStrip ? columns : k0 + kStrip;
      for (size_t r = 0; r < count; ++r) {
        const Source* row = source + (first + r) * columns;
        for (size_t k = k0; k < k1; ++k) target[k * kPanel + r] = convert(row[k]);
      }
    }
  }
}

template <class Source, class Target>
void pack_between(const void* source, Format from, void* target, Format to, size_t rows, size_t columns) {
  const auto* in = static_cast<const Source*>(source);
  auto* out = static_cast<Target*>(target);
  if (from == to) return pack_as(in, out, rows, columns, [](Source bits) { return static_cast<Target>(bits); });
  pack_as(in, out, rows, columns,
          [from, to](Source bits) { return static_cast<Target>(narrow_one(widen_one(bits, from), to)); });
}

}  // namespace

void pack(const void* source, Format from, void* target, Format to, size_t rows, size_t columns) {
  const bool wide_in = from == Format::f32, wide_out = to == Format::f32;
  if (wide_in && wide_out) return pack_between<uint32_t, uint32_t>(source, from, target, to, rows, columns);
  if (wide_in) return pack_between<uint32_t, uint16_t>(source, from, target, to, rows, columns);
  if (wide_out) return pack_between<uint16_t, uint32_t>(source, from, target, to, rows, columns);
  pack_between<uint16_t, uint16_t>(source, from, target, to, rows, columns);
}

void unpack_row(const void* packed, Format format, size_t columns, size_t row, float* target) {
  const size_t first = row / kPanel * columns * kPanel + row % kPanel;
  for (size_t k = 0; k < columns; ++k) {
    const size_t at = first + k * kPanel;
    const uint32_t bits = format == Format::f32 ? static_cast<const uint32_t*>(packed)[at]
                                                : static_cast<const uint16_t*>(packed)[at];
    target[k] = widen_one(bits, format);
  }
}

}  // namespace helm
