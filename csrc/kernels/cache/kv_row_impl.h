// Rows of caches as attention reads them (see KvSpan), for the instruction set whose Simd was included before.
#pragma once
#include "kernels/elementwise/elementwise_impl.h"

namespace helm {
namespace {

constexpr size_t kScaled = 32;  // values under one scale

// A register of values of a q8_0 row, from a multiple of Simd::lanes on.
inline V scaled_codes(const void* row, size_t index, float scale) {
  return Simd::mul(Simd::signed_bytes(static_cast<const uint8_t*>(row) + index), Simd::set(scale));
}

// A row of `n` values as f32.
void read_row(Format format, const void* row, size_t n, float* values) {
  if (format != Format::q8_0) return widen(format, row, n, values);
  for (size_t first = 0; first < n; first += kScaled) {
    uint16_t half;
    memcpy(&half, static_cast<const char*>(row) + n + first / kScaled * 2, 2);
    const float scale = widen_f16(half);
    for (size_t i = first; i < first + kScaled; i += Simd::lanes) Simd::store(values + i, scaled_codes(row, i, scale));
  }
}

// 32 values as GGUF's Q8_0 rounds them: halves away from zero, by the inverse of the scale before it is rounded. NaN
// counts as zero, what is beyond f16 as its largest.
inline void quantise_codes(const float* values, uint8_t* codes, uint16_t* half) {
  float x[kScaled], largest = 0;
  for (size_t i = 0; i < kScaled; ++i) {
    const float v = values[i] == values[i] ? values[i] : 0.0f, low = v > -65504.0f ? v : -65504.0f;
    x[i] = low < 65504.0f ? low : 65504.0f;
    const float magnitude = fabsf(x[i]);
    largest = largest < magnitude ? magnitude : largest;
  }
  const float scale = largest / 127, inverse = scale < 0x1p-126f ? 0.0f : 1 / scale;
  for (size_t i = 0; i < kScaled; ++i) {
    const int halves = static_cast<int>(x[i] * inverse * 2);  // no sum that could be fused with the product
    codes[i] = static_cast<uint8_t>((halves + (halves > 0) - (halves < 0)) / 2);
  }
  *half = narrow_f16(scale);
}

// `n` values to a row.
void write_row(Format format, const float* values, size_t n, void* row) {
  if (format != Format::q8_0) return narrow(format, values, n, row);
  auto* codes = static_cast<uint8_t*>(row);
  for (size_t first = 0; first < n; first += kScaled) {
    uint16_t half;
    quantise_codes(values + first, codes + first, &half);
    memcpy(codes + n + first / kScaled * 2, &half, 2);
  }
}

}  // namespace
}  // namespace helm
