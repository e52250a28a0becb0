#include "formats/quantise.h"

#include <cmath>

namespace helm {
namespace {

constexpr float kLargestHalf = 65504.0f;

constexpr float kSmallestScale = 0x1p-126f;  // below, it has no finite inverse, and f16 holds zero

// Halves away from zero.
int round_away(float value) {
  const int whole = static_cast<int>(value);
  const float rest = value - static_cast<float>(whole);
  return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

float inverse_of(float scale) { return std::fabs(scale) < kSmallestScale ? 0.0f : 1 / scale; }

CodeBlock quantise_q8_0(const float* x) {
  const Bounds bounds = bounds_of(x, kRun);
  const float scale = (-bounds.low > bounds.high ? -bounds.low : bounds.high) / 127, inverse = inverse_of(scale);
  CodeBlock b;
  b.scale = narrow_f16(scale);
  for (size_t c = 0; c < kRun; ++c) b.codes[c] = static_cast<uint8_t>(static_cast<int8_t>(round_away(x[c] * inverse)));
  return b;
}

// The value of the largest magnitude, the first of several, becomes code 0: -8 times the scale.
CodeBlock quantise_q4_0(const float* x) {
  const Bounds bounds = bounds_of(x, kRun);
  float extreme = -bounds.low > bounds.high ? bounds.low : bounds.high;
  if (-bounds.low == bounds.high)
    for (size_t c = kRun; c-- > 0;) extreme = std::fabs(x[c]) == bounds.high ? x[c] : extreme;
  const float scale = extreme / -8, inverse = inverse_of(scale);
  CodeBlock b;
  b.scale = narrow_f16(scale);
  for (size_t c = 0; c < kRun; ++c) {
    const int code = static_cast<int>(x[c] * inverse + 8.5f);
    b.codes[c] = static_cast<uint8_t>(code > 15 ? 15 : code);
  }
  return b;
}

// The scale makes the largest magnitude one of a level's binade, 4 to 8; codes are those of the nearest levels, the one
// of smaller magnitude between two.
CodeBlock quantise_mxfp4(const float* x) {
  const Bounds bounds = bounds_of(x, kRun);
  const float largest = -bounds.low > bounds.high ? -bounds.low : bounds.high;
  const int exponent = static_cast<int>(bits_of(largest) >> 23) - 2;
  CodeBlock b;
  b.scale = static_cast<uint16_t>(exponent < 2 ? 2 : exponent);
  const float half = float_of(half_scale_bits(static_cast<uint8_t>(b.scale)));
  for (size_t c = 0; c < kRun; ++c) {
    const float doubled = std::fabs(x[c]) / half;
    uint8_t code = 0;
    while (code < 7 && doubled - kDoubledLevels[code] > kDoubledLevels[code + 1] - doubled) ++code;
    b.codes[c] = static_cast<uint8_t>(x[c] < 0 ? code + 8 : code);
  }
  return b;
}

}  // namespace

Bounds bounds_of(const float* values, size_t count) {
  float low[8], high[8];
  for (int i = 0; i < 8; ++i) low[i] = high[i] = values[i];
  for (size_t c = 8; c < count; c += 8)
    for (int i = 0; i < 8; ++i) {
      low[i] = values[c + i] < low[i] ? values[c + i] : low[i];
      high[i] = values[c + i] > high[i] ? values[c + i] : high[i];
    }
  for (int i = 1; i < 8; ++i) {
    low[0] = low[i] < low[0] ? low[i] : low[0];
    high[0] = high[i] > high[0] ? high[i] : high[0];
  }
  return {low[0], high[0]};
}

CodeBlock quantise_block(Format format, const float* values, size_t count) {
  float x[kMostColumns];
  for (size_t c = 0; c < count; ++c) {
    const float v = values[c] == values[c] ? values[c] : 0.0f;
    const float low = v > -kLargestHalf ? v : -kLargestHalf;
    x[c] = low < kLargestHalf ? low : kLargestHalf;
  }
  switch (format) {
    case Format::q8_0:
      return quantise_q8_0(x);
    case Format::q4_0:
      return quantise_q4_0(x);
    case Format::q4_k:
      return quantise_q4_k(x);
    case Format::q6_k:
      return quantise_q6_k(x);
    case Format::mxfp4:
      return quantise_mxfp4(x);
    default:
      return quantise_group(x, count, format == Format::q8 ? 255 : 15);
  }
}

}  // namespace helm
