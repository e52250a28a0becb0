// Storage formats and their scalar conversions (round to nearest even; NaN stays NaN).
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace helm {

enum class Format { f32, f16, bf16 };

// Everything here is `static`: these functions are also compiled with AVX flags, and a shared copy of them
// could replace the portable one when linking.
static constexpr size_t size_of(Format format) { return format == Format::f32 ? 4 : 2; }

static inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

static inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return bits;
}

// Without subnormal numbers on the way: threads of a pool take those for zero.
static inline float widen_f16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half & 0x7fffu) << 13;  // exponent and mantissa where f32 has them
  const uint32_t shift = bits >= 0x0f800000u ? 0x70000000u : 0x38000000u;  // infinities and NaN: to exponent 255
  const float normal = float_of(bits + shift);
  const float tiny = float_of(bits + 0x38800000u) - 0x1p-14f;
  const float magnitude = bits < 0x00800000u ? tiny : normal;
  return float_of(bits_of(magnitude) | static_cast<uint32_t>(half & 0x8000u) << 16);
}

static inline float widen_bf16(uint16_t half) { return float_of(static_cast<uint32_t>(half) << 16); }

static inline uint16_t narrow_f16(float value) {
  const uint32_t sign = bits_of(value) & 0x80000000u;
  uint32_t bits = bits_of(value) ^ sign;
  uint32_t half;
  if (bits >= 0x47800000u) {  // 65536 and above
    half = bits > 0x7f800000u ? 0x7e00u : 0x7c00u;
  } else if (bits < 0x38800000u) {  // denormal: let an addition align and round the mantissa
    half = bits_of(float_of(bits) + 0.5f) - 0x3f000000u;
  } else {
    bits += 0xc8000fffu + ((bits >> 13) & 1);  // exponent 127 -> 15, half of the last place
    half = bits >> 13;
  }
  return static_cast<uint16_t>(half | sign >> 16);
}

static inline uint16_t narrow_bf16(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

}  // namespace helm
