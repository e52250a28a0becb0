#include "formats/blocks.h"

namespace helm {
namespace {

// Sixteen bytes of codes i (low) and i + 16 (high) per 32 columns.
void read_halves(const uint8_t* bytes, size_t columns, uint8_t* codes) {
  for (size_t first = 0; first < columns; first += kRun, bytes += kRun / 2)
    for (size_t i = 0; i < kRun / 2; ++i) {
      codes[first + i] = bytes[i] & 15;
      codes[first + kRun / 2 + i] = bytes[i] >> 4;
    }
}

void write_halves(const uint8_t* codes, size_t columns, uint8_t* bytes) {
  for (size_t first = 0; first < columns; first += kRun, bytes += kRun / 2)
    for (size_t i = 0; i < kRun / 2; ++i)
      bytes[i] = static_cast<uint8_t>(codes[first + i] | codes[first + kRun / 2 + i] << 4);
}

// q4_k: d, dmin, 12 bytes of six-bit scales and minima, then per 64 columns 32 bytes of codes i and i + 32.
void read_q4_k(const uint8_t* bytes, CodeBlock& b) {
  memcpy(&b.scale, bytes, 2);
  memcpy(&b.minimum, bytes + 2, 2);
  const uint8_t* six = bytes + 4;
  for (int i = 0; i < 4; ++i) {
    b.scales[i] = six[i] & 63;
    b.minima[i] = six[4 + i] & 63;
    b.scales[4 + i] = static_cast<uint8_t>((six[8 + i] & 15) | six[i] >> 6 << 4);
    b.minima[4 + i] = static_cast<uint8_t>(six[8 + i] >> 4 | six[4 + i] >> 6 << 4);
  }
  for (size_t first = 0; first < 256; first += 64)
    for (size_t i = 0; i < 32; ++i) {
      const uint8_t both = bytes[16 + first / 2 + i];
      b.codes[first + i] = both & 15;
      b.codes[first + 32 + i] = both >> 4;
    }
}

void write_q4_k(const CodeBlock& b, uint8_t* bytes) {
  memcpy(bytes, &b.scale, 2);
  memcpy(bytes + 2, &b.minimum, 2);
  uint8_t* six = bytes + 4;
  for (int i = 0; i < 4; ++i) {
    six[i] = static_cast<uint8_t>(b.scales[i] | b.scales[4 + i] >> 4 << 6);
    six[4 + i] = static_cast<uint8_t>(b.minima[i] | b.minima[4 + i] >> 4 << 6);
    six[8 + i] = static_cast<uint8_t>((b.scales[4 + i] & 15) | (b.minima[4 + i] & 15) << 4);
  }
  for (size_t first = 0; first < 256; first += 64)
    for (size_t i = 0; i < 32; ++i)
      bytes[16 + first / 2 + i] = static_cast<uint8_t>(b.codes[first + i] | b.codes[first + 32 + i] << 4);
}

// q6_k: per 128 columns, byte i of 64 holds the low four bits of columns i and i + 64, and byte i of 32 the high two
// of columns i, i + 32, i + 64 and i + 96; all low bits first, then all high ones, 16 scales and d.
void read_q6_k(const uint8_t* bytes, CodeBlock& b) {
  memcpy(b.scales, bytes + 192, 16);
  memcpy(&b.scale, bytes + 208, 2);
  for (size_t c = 0; c < 256; ++c) {
    const size_t half = c / 128, at = c % 128;
    const unsigned low = bytes[half * 64 + at % 64] >> (at / 64 * 4) & 15;
    const unsigned high = bytes[128 + half * 32 + at % 32] >> (at / 32 * 2) & 3;
    b.codes[c] = static_cast<uint8_t>(low | high << 4);
  }
}

void write_q6_k(const CodeBlock& b, uint8_t* bytes) {
  memset(bytes, 0, 192);
  memcpy(bytes + 192, b.scales, 16);
  memcpy(bytes + 208, &b.scale, 2);
  for (size_t c = 0; c < 256; ++c) {
    const size_t half = c / 128, at = c % 128;
    bytes[half * 64 + at % 64] |= static_cast<uint8_t>((b.codes[c] & 15) << (at / 64 * 4));
    bytes[128 + half * 32 + at % 32] |= static_cast<uint8_t>(b.codes[c] >> 4 << (at / 32 * 2));
  }
}

}  // namespace

CodeBlock read_block(Format format, const uint8_t* bytes, size_t columns) {
  CodeBlock b;
  if (format == Format::q4_k) return read_q4_k(bytes, b), b;
  if (format == Format::q6_k) return read_q6_k(bytes, b), b;
  if (format == Format::mxfp4) {
    b.scale = bytes[0];
    return read_halves(bytes + 1, columns, b.codes), b;
  }
  memcpy(&b.scale, bytes, 2);
  if (facts_of(format).minimum) memcpy(&b.minimum, bytes + 2, 2);
  const uint8_t* codes = bytes + (facts_of(format).minimum ? 4 : 2);
  if (format == Format::q8_0 || format == Format::q8)
    memcpy(b.codes, codes, columns);
  else
    read_halves(codes, columns, b.codes);
  return b;
}

void write_block(Format format, const CodeBlock& b, size_t columns, uint8_t* bytes) {
  if (format == Format::q4_k) return write_q4_k(b, bytes);
  if (format == Format::q6_k) return write_q6_k(b, bytes);
  if (format == Format::mxfp4) {
    bytes[0] = static_cast<uint8_t>(b.scale);
    return write_halves(b.codes, columns, bytes + 1);
  }
  memcpy(bytes, &b.scale, 2);
  if (facts_of(format).minimum) memcpy(bytes + 2, &b.minimum, 2);
  uint8_t* codes = bytes + (facts_of(format).minimum ? 4 : 2);
  if (format == Format::q8_0 || format == Format::q8)
    memcpy(codes, b.codes, columns);
  else
    write_halves(b.codes, columns, codes);
}

// Products of a scale and a code are exact in f32, so only the last addition rounds.
void values_of(Format format, const CodeBlock& b, size_t count, float* values) {
  const float scale = widen_f16(b.scale), minimum = widen_f16(b.minimum);
  const auto fill = [&](const auto& value) {
    for (size_t c = 0; c < count; ++c) values[c] = value(c, static_cast<float>(b.codes[c]));
  };
  switch (format) {
    case Format::q8_0:
      return fill([&](size_t, float code) { return scale * (code < 128 ? code : code - 256); });
    case Format::q4_0:
      return fill([&](size_t, float code) { return scale * (code - 8); });
    case Format::q4_k:
      return fill([&](size_t c, float code) { return scale * b.scales[c / 32] * code - minimum * b.minima[c / 32]; });
    case Format::q6_k:
      return fill([&](size_t c, float code) { return scale * static_cast<int8_t>(b.scales[c / 16]) * (code - 32); });
    case Format::mxfp4:
      return fill([half = float_of(half_scale_bits(static_cast<uint8_t>(b.scale)))](size_t, float code) {
        return half * kDoubledLevels[static_cast<size_t>(code)];
      });
    default:
      return fill([&](size_t, float code) { return scale * code + minimum; });
  }
}

}  // namespace helm
