// What decode attention over blocks of q8_0 rows, multiplied as they are stored, shares for scores and values, for the
// instruction set whose Simd was included before.
//
// Bound by arithmetic if codes become f32. Queries, and weights times the scales of values, are 16-bit integers: a
// product of two of them with two codes and its sum take one instruction or two, and sums of a block are exact. Up to
// four query heads share what is taken apart. Registers are seen as parts of 16 bytes, within which shuffles are cheap.
#pragma once
#include "kernels/attention/attention_reading_impl.h"

namespace helm {
namespace {

constexpr size_t kCodedUnit = 4 * Simd::lanes;   // codes in a register
constexpr size_t kPart = 16;                     // bytes
constexpr size_t kQueryWords = 4 * Simd::lanes;  // of a query against a quarter of a unit
constexpr size_t kQuad = 4;                      // rows whose codes are interleaved: 32 bits of each in a part
constexpr size_t kQuads = kDecodeRows / kQuad;
constexpr size_t kParts = Simd::lanes / kQuad;  // of a register
constexpr size_t kSetRows = 2 * kDecodeRows;    // positions whose weights have one scale: two blocks
constexpr size_t kSetPairs = kSetRows / 2;

typedef int16_t CodeWords __attribute__((vector_size(4 * Simd::lanes)));
typedef int32_t CodePairs __attribute__((vector_size(4 * Simd::lanes)));
typedef int64_t PairsOfTwo __attribute__((vector_size(4 * Simd::lanes)));
typedef float FourRows __attribute__((vector_size(4 * Simd::lanes)));

template <size_t... i>
struct Indices {};
template <size_t n, size_t... i>
struct IndicesTo : IndicesTo<n - 1, n - 1, i...> {};
template <size_t... i>
struct IndicesTo<0, i...> {
  using Type = Indices<i...>;
};

// Where element i of an interleaving of a and b comes from: within each part, elements of their low or high halves by
// turns. An index of at least kCount is b's.
template <size_t kCount, size_t kInPart, bool kHigh>
constexpr size_t interleaved_at(size_t i) {
  return i / kInPart * kInPart + (i % kInPart + (kHigh ? kInPart : 0)) / 2 + i % 2 * kCount;
}

template <bool kHigh, class T, size_t... i>
HELM_INLINE T interleaved(T a, T b, Indices<i...>) {
  constexpr size_t count = sizeof...(i), in_part = count * kPart / sizeof(T);
  return __builtin_shufflevector(a, b, interleaved_at<count, in_part, kHigh>(i)...);
}

template <bool kHigh, class T>
HELM_INLINE T interleaved(T a, T b) {
  return interleaved<kHigh>(a, b, typename IndicesTo<sizeof(T) / sizeof(a[0])>::Type());
}

// Of four registers: register c of the result has in each part the c-th 32 bits of that part of all four.
HELM_INLINE void turn_parts(CodePairs r0, CodePairs r1, CodePairs r2, CodePairs r3, CodePairs* turned) {
  const auto a = reinterpret_cast<PairsOfTwo>(interleaved<false>(r0, r1));
  const auto b = reinterpret_cast<PairsOfTwo>(interleaved<false>(r2, r3));
  const auto c = reinterpret_cast<PairsOfTwo>(interleaved<true>(r0, r1));
  const auto d = reinterpret_cast<PairsOfTwo>(interleaved<true>(r2, r3));
  turned[0] = reinterpret_cast<CodePairs>(interleaved<false>(a, b));
  turned[1] = reinterpret_cast<CodePairs>(interleaved<true>(a, b));
  turned[2] = reinterpret_cast<CodePairs>(interleaved<false>(c, d));
  turned[3] = reinterpret_cast<CodePairs>(interleaved<true>(c, d));
}

// Register `kIndex` of the parts of two, taken by turns.
template <size_t kIndex, size_t... i>
HELM_INLINE CodePairs parts_by_turns(CodePairs a, CodePairs b, Indices<i...>) {
  constexpr size_t n = Simd::lanes;
  return __builtin_shufflevector(a, b, ((kIndex * n + i) / 8 * 4 + i % 4 + (i / 4 + kIndex * (n / 4)) % 2 * n)...);
}

// What decode keeps beside coded rows. Queries as words for scores: of each unit of columns and quarter of its parts
// two registers, of the columns that are even and odd in their order, each repeated for kQuad rows; and, as codes of
// even columns are read 128 too high, what that adds to the sums of each part, negative. Weights times scales of a set
// of rows as words under one scale per query head. Units of columns are rounded up, their blocks to a multiple of four.
struct Coded {
  size_t units, blocks, width, stride;  // columns, bytes between rows
  int16_t* words;                       // [group / 4][units][4][4][2][lanes][2]
  int32_t* excess;                      // [group / 4][units][4][lanes]
  int32_t* pairs;                       // [2 sets by turns][group / 4][blocks][4][kSetPairs]
  char* turned;                         // codes of a block of keys [units][4][kQuads][kCodedUnit]
  uint16_t* halves;                     // scales of two blocks as they are stored, in copy_scales' order
  float* scales;                        // of a block of keys, by unit; of a set of values [blocks][kSetRows]
  float* query_scales;                  // [group]
  float* weight_scales;                 // [2][group]
  float* sums;                          // of a tile's weights [group][lanes]
  const float* maxima;                  // of scores [group]
  size_t set_pairs, group;

  // Of query heads from `g` on, and a set of rows.
  int16_t* words_of(size_t g) const { return words + (g / 4 * units * 16 + g % 4) * kQueryWords; }
  int32_t* excess_of(size_t g) const { return excess + (g / 4 * units * 4 + g % 4) * Simd::lanes; }
  int32_t* pairs_of(size_t set, size_t g) const {
    return pairs + set % 2 * set_pairs + (g / 4 * blocks * 4 + g % 4) * kSetPairs;
  }
  float* weight_scales_of(size_t set, size_t g) const { return weight_scales + set % 2 * group + g; }
};

inline Coded coded_layout(size_t head_dim, size_t stride, size_t group, float* scratch, const float* maxima) {
  const size_t units = round_up(head_dim, kCodedUnit) / kCodedUnit, fours = (group + 3) / 4;
  const size_t blocks = round_up(head_dim, 4 * kScaled) / kScaled;
  const auto take = [&](size_t floats) { return scratch += floats, scratch - floats; };
  Coded c = {};
  c.units = units, c.blocks = blocks, c.width = head_dim, c.stride = stride, c.group = group, c.maxima = maxima,
  c.set_pairs = fours * blocks * 4 * kSetPairs;
  c.words = reinterpret_cast<int16_t*>(take(fours * units * 16 * kQueryWords / 2));
  c.excess = reinterpret_cast<int32_t*>(take(fours * units * 4 * Simd::lanes));
  c.pairs = reinterpret_cast<int32_t*>(take(2 * c.set_pairs));
  c.turned = reinterpret_cast<char*>(take(units * 4 * kQuads * Simd::lanes));
  c.halves = reinterpret_cast<uint16_t*>(take(blocks * kSetRows / 2));
  c.scales = take(blocks * kSetRows);
  c.query_scales = take(group);
  c.weight_scales = take(2 * group);
  c.sums = take(group * Simd::lanes);
  return c;
}

constexpr float kCodedMost = 32767.0f;
constexpr float kCodedLeast = 1e-30f;  // what is smaller is zero: its inverse is no number

// What brings the largest to kCodedMost.
inline float word_factor(float largest) { return largest >= kCodedLeast ? kCodedMost / largest : 0.0f; }

inline V whole_part(V x, V factor) {
  const V magic = Simd::set(12582912.0f);
  return Simd::sub(Simd::fma(x, factor, magic), magic);
}

// Query head `g`, q[width].
inline void code_query(const float* q, size_t width, const Coded& to, size_t g) {
  int16_t* const own = to.words_of(g);
  int32_t* const excess = to.excess_of(g);
  V most = Simd::zero();
  for (size_t d = 0; d < width; d += Simd::lanes) {
    const V v = Simd::load(q + d);
    most = Simd::max(most, Simd::max(v, Simd::sub(Simd::zero(), v)));
  }
  const float largest = Simd::largest(most);
  const V factor = Simd::set(word_factor(largest));
  to.query_scales[g] = largest / kCodedMost;
  for (size_t part = 0; part < width / kPart; ++part) {
    int16_t words[kPart];
    for (size_t d = 0; d < kPart; d += Simd::lanes)
      Simd::store_whole(words + d, whole_part(Simd::load(q + part * kPart + d), factor));
    const size_t unit = part * kPart / kCodedUnit, at = part % (kCodedUnit / kPart) * kQuad;
    int32_t even = 0;
    for (size_t c = 0; c < 4; ++c) {
      int16_t* quarter = own + (unit * 4 + c) * 4 * kQueryWords + 2 * at;
      for (size_t r = 0; r < kQuad; ++r)
        for (size_t odd = 0; odd < 2; ++odd)
          for (size_t k = 0; k < 2; ++k) quarter[odd * 2 * Simd::lanes + 2 * r + k] = words[4 * c + 2 * k + odd];
      even += words[4 * c] + words[4 * c + 2];
    }
    for (size_t r = 0; r < kQuad; ++r) excess[unit * 4 * Simd::lanes + at + r] = -128 * even;
  }
}

// q[group][width]; columns beyond them are zero.
inline void code_queries(const float* q, size_t width, size_t group, const Coded& to) {
  const size_t fours = (group + 3) / 4;
  memset(to.words, 0, fours * to.units * 16 * kQueryWords * sizeof(int16_t));
  memset(to.excess, 0, fours * to.units * 4 * Simd::lanes * sizeof(int32_t));
  for (size_t g = 0; g < group; ++g) code_query(q + g * width, width, to, g);
}

// Four scales of every row, made by `four` of the bits there, to halves [kDecodeRows / lanes][kQuad][kParts][4], by
// row: register, row of a part, part. They are moved row by row: in registers of several they would take the port that
// turns codes. Who reads registers of them does so much later, when they have left the store buffer.
template <class Four>
HELM_INLINE void copy_each(const char* from, size_t stride, uint16_t* halves, const Four& four) {
  for (size_t first = 0; first < kDecodeRows; first += Simd::lanes, halves += 4 * Simd::lanes)
#pragma GCC unroll 1
    for (size_t part = 0; part < kParts; ++part)
#pragma GCC unroll 4
      for (size_t r = 0; r < kQuad; ++r, from += stride) {
        uint64_t bits;
        memcpy(&bits, from, 8);
        bits = four(bits);
        __asm__("" : "+r"(bits));
        memcpy(halves + (r * kParts + part) * 4, &bits, 8);
      }
}

// Scales of a block of rows to halves [blocks / 4][...]. Zero where there is none: four are read that end where the row
// does.
HELM_INLINE void copy_scales(const char* rows, const Coded& like, uint16_t* halves) {
  const size_t blocks = like.width / kScaled, missing = 4 - blocks % 4;
  const char* from = rows + like.width;
  for (size_t block = 0; block + 4 <= blocks; block += 4, from += 8, halves += 4 * kDecodeRows)
    copy_each(from, like.stride, halves, [](uint64_t bits) { return bits; });
  if (missing < 4)
    copy_each(from - 2 * missing, like.stride, halves, [&](uint64_t bits) { return bits >> 16 * missing; });
}

// use(row, block, scales) with a register of the scales of rows from `row` on for each of blocks [block, block + 4).
template <class Use>
HELM_INLINE void each_scales(const uint16_t* halves, size_t blocks, const Use& use) {
  for (size_t block = 0; block < blocks; block += 4)
#pragma GCC unroll 4
    for (size_t first = 0; first < kDecodeRows; first += Simd::lanes, halves += 4 * Simd::lanes) {
      const auto row = [&](size_t r) HELM_LAMBDA {
        return reinterpret_cast<CodePairs>(Simd::load_f16(halves + r * Simd::lanes));
      };
      CodePairs scales[4];
      turn_parts(row(0), row(1), row(2), row(3), scales);
      use(first, block, scales);
    }
}

}  // namespace
}  // namespace helm
