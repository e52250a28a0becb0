#include "formats/panels.h"

namespace helm {
namespace {

constexpr size_t kLine = 64, kHalves = 32;  // bytes: of codes of 16 rows, of an f16 of each

// Bits of column `column` of a line of `bits` wide codes.
constexpr unsigned shift_of(size_t column, unsigned bits) {
  return static_cast<unsigned>(column % 2 * 16 + column / 2 * bits);
}

// `count` codes of `bits` bits in a word of a row.
inline void put_word(const uint8_t* codes, size_t count, unsigned bits, unsigned drop, uint8_t* word) {
  uint32_t all = 0;
  for (size_t c = 0; c < count; ++c)
    all |= (static_cast<uint32_t>(codes[c]) >> drop & ((1u << bits) - 1)) << shift_of(c, bits);
  memcpy(word, &all, 4);
}

inline void take_word(const uint8_t* word, size_t count, unsigned bits, unsigned drop, uint8_t* codes) {
  uint32_t all;
  memcpy(&all, word, 4);
  for (size_t c = 0; c < count; ++c)
    codes[c] = static_cast<uint8_t>(codes[c] | (all >> shift_of(c, bits) & ((1u << bits) - 1)) << drop);
}

// Calls visit(word's place, first column, columns, bits, dropped low bits) for every word of a row.
template <class Bytes, class Visit>
void each_word(Format format, size_t columns, size_t row, Bytes* lines, const Visit& visit) {
  Bytes* at = lines + row * 4;
  if (format == Format::q6_k) {
    for (size_t c = 0; c < columns; c += 16, at += 3 * kLine) {
      visit(at, c, 8, 4, 0);
      visit(at + kLine, c + 8, 8, 4, 0);
      visit(at + 2 * kLine, c, 16, 2, 4);
    }
    return;
  }
  if (format == Format::q8_0 || format == Format::q8)
    for (size_t c = 0; c < columns; c += 4, at += kLine) visit(at, c, 4, 8, 0);
  else
    for (size_t c = 0; c < columns; c += 8, at += kLine) visit(at, c, 8, 4, 0);
}

void put_scales(Format format, const CodeBlock& b, size_t row, uint8_t* at) {
  if (format == Format::q6_k)
    for (size_t i = 0; i < 16; ++i) at[i * 16 + row] = b.scales[i];
  if (format != Format::q4_k) return;
  for (size_t i = 0; i < 8; ++i, at += 24) {
    at[row] = static_cast<uint8_t>(b.scales[i] | (b.minima[i] & 3) << 6);
    uint8_t& high = at[16 + row % 8];
    high = static_cast<uint8_t>(row < 8 ? (high & 0xf0) | b.minima[i] >> 2 : (high & 15) | b.minima[i] >> 2 << 4);
  }
}

void take_scales(Format format, const uint8_t* at, size_t row, CodeBlock& b) {
  if (format == Format::q6_k)
    for (size_t i = 0; i < 16; ++i) b.scales[i] = at[i * 16 + row];
  if (format != Format::q4_k) return;
  for (size_t i = 0; i < 8; ++i, at += 24) {
    const unsigned high = at[16 + row % 8] >> (row < 8 ? 0 : 4) & 15;
    b.scales[i] = at[row] & 63;
    b.minima[i] = static_cast<uint8_t>(at[row] >> 6 | high << 2);
  }
}

}  // namespace

void put_block(Format format, const CodeBlock& b, size_t columns, size_t row, uint8_t* to) {
  if (format == Format::mxfp4)
    to[row] = static_cast<uint8_t>(b.scale);
  else
    memcpy(to + row * 2, &b.scale, 2);
  if (facts_of(format).minimum) memcpy(to + kHalves + row * 2, &b.minimum, 2);
  put_scales(format, b, row, to + kHalves * (facts_of(format).minimum ? 2 : 1));
  each_word(format, columns, row, to + facts_of(format).panel_scales,
            [&](uint8_t* word, size_t first, size_t count, unsigned bits, unsigned drop) {
              put_word(b.codes + first, count, bits, drop, word);
            });
}

CodeBlock take_block(Format format, const uint8_t* from, size_t columns, size_t row) {
  CodeBlock b;
  if (format == Format::mxfp4)
    b.scale = from[row];
  else
    memcpy(&b.scale, from + row * 2, 2);
  if (facts_of(format).minimum) memcpy(&b.minimum, from + kHalves + row * 2, 2);
  take_scales(format, from + kHalves * (facts_of(format).minimum ? 2 : 1), row, b);
  each_word(format, columns, row, from + facts_of(format).panel_scales,
            [&](const uint8_t* word, size_t first, size_t count, unsigned bits, unsigned drop) {
              take_word(word, count, bits, drop, b.codes + first);
            });
  return b;
}

}  // namespace helm
