// Storage formats and their scalar conversions (round to nearest even; NaN stays NaN).
//
// Quantised formats hold blocks of consecutive columns of a row: codes under scales in f16 (mxfp4: a power of two).
// q8_0, q4_0, q4_k and q6_k are GGUF's blocks, bit for bit; q8 and q4 are groups of 64 codes of 8 or 4 bits with a
// scale and a minimum.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace helm {

enum class Format { f32, f16, bf16, q8_0, q4_0, q4_k, q6_k, q8, q4, mxfp4 };

// Everything here is `static`: these functions are also compiled with AVX flags, and a shared copy of them
// could replace the portable one when linking.
static constexpr bool quantised(Format format) { return format > Format::bf16; }

// Bytes of a value of a plain format.
static constexpr size_t size_of(Format format) { return format == Format::f32 ? 4 : 2; }

// What is known of a format: its name, and of quantised ones the columns and bytes of a block of one row.
struct FormatFacts {
  const char* name;
  size_t columns, bytes;
  bool whole;           // rows are whole blocks; else the last may be shorter, its codes padded to kRun
  int largest_code;     // as a number without sign
  bool minimum;         // blocks have an f16 minimum behind their f16 scale
  size_t scale_at;      // bytes of a row's block before its scale
  size_t panel_scales;  // bytes of scales and minima before the codes of a panel's block
};

// In the order of Format.
// clang-format off
static constexpr FormatFacts kFormats[] = {
    // name, columns, bytes, whole, code, minimum, scale at, panel's scales
    {"f32",    1,   4, true,    0, false,   0,   0},
    {"f16",    1,   2, true,    0, false,   0,   0},
    {"bf16",   1,   2, true,    0, false,   0,   0},
    {"q8_0",  32,  34, true,  255, false,   0,  32},
    {"q4_0",  32,  18, true,   15, false,   0,  32},
    {"q4_k", 256, 144, true,   15, true,    0, 256},
    {"q6_k", 256, 210, true,   63, false, 208, 288},
    {"q8",    64,  68, false, 255, true,    0,  64},
    {"q4",    64,  36, false,  15, true,    0,  64},
    {"mxfp4", 32,  17, true,   24, false,   0,  16},
};
// clang-format on

static_assert(sizeof(kFormats) / sizeof(*kFormats) == static_cast<size_t>(Format::mxfp4) + 1, "a row for every format");

static constexpr const FormatFacts& facts_of(Format format) { return kFormats[static_cast<size_t>(format)]; }

// What the codes of mxfp4 (E2M1) stand for, doubled; a block's scale byte e (E8M0) is 2^(e - 127).
constexpr int8_t kDoubledLevels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
constexpr int kLevelsOffset = 12;  // what makes them codes without sign

constexpr size_t kRun = 32;    // columns that are coded alike in every quantised format
constexpr size_t kPanel = 16;  // rows interleaved in packed weights: one AVX-512 register

static constexpr size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// Bytes of a row of `columns` values: row-major, or as a sixteenth of a packed panel. A quantised row whose last block
// is shorter has that block's header and codes for a multiple of 32 columns.
static constexpr size_t row_size(Format format, size_t columns) {
  const FormatFacts& block = facts_of(format);
  const size_t rest = (columns % block.columns + kRun - 1) / kRun * kRun, header = block.bytes % kRun;
  const size_t last = rest == 0 ? 0 : header + (block.bytes - header) * rest / block.columns;
  return columns / block.columns * block.bytes + last;
}

// Half of a scale byte's power of two, which meets doubled levels; zero where that is subnormal.
static inline uint32_t half_scale_bits(uint8_t byte) { return byte > 1 ? static_cast<uint32_t>(byte - 1) << 23 : 0; }

// Whether rows of so many columns can be stored.
static constexpr bool divides(Format format, size_t columns) {
  return !facts_of(format).whole || columns % facts_of(format).columns == 0;
}

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
  const uint32_t bits = static_cast<uint32_t>(half & 0x7fffu) << 13;       // exponent and mantissa where f32 has them
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
