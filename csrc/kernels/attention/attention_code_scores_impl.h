// Scores of decode attention over blocks of q8_0 keys, for the instruction set whose Simd was included before.
//
// Two passes, of which the second is bound by its products alone: codes of a block are turned into scratch, where lanes
// of a register are rows, and are then read against queries that stay in registers for several quads of rows. In one
// pass every sum would wait for the turning before it: a third slower.
#pragma once
#include "kernels/attention/attention_codes_impl.h"

namespace helm {
namespace {

constexpr int kSums = Simd::lanes == 16 ? 16 : 8;  // registers: half of them

// kBytes codes, and zeros.
template <size_t kBytes>
HELM_INLINE CodePairs load_codes(const char* from) {
  CodePairs codes = {};
  memcpy(&codes, from, kBytes);
  return codes;
}

// What comes next is asked for evenly over the time of both passes: a dozen lines can be under way, and once they are
// there memory would rest. So loops that ask are not unrolled, or compilers ask first.
constexpr size_t kAskedTurning = kQuad * kCodedUnit / 4, kAskedMultiplying = kQuad * kCodedUnit - kAskedTurning;

// A unit of columns, of which rows have kBytes codes.
template <size_t kBytes>
HELM_INLINE void turn_unit(const char* row, size_t stride, Lines& ahead, char* to) {
#pragma GCC unroll 1
  for (size_t quad = 0; quad < kQuads; ++quad, row += kQuad * stride, to += kCodedUnit) {
    ahead.ask<kAskedTurning>();
    CodePairs turned[4];
    turn_parts(load_codes<kBytes>(row), load_codes<kBytes>(row + stride), load_codes<kBytes>(row + 2 * stride),
               load_codes<kBytes>(row + 3 * stride), turned);
#pragma GCC unroll 4
    for (size_t c = 0; c < 4; ++c) memcpy(to + c * kQuads * kCodedUnit, &turned[c], kCodedUnit);
  }
}

// Of scales [4][kQuads][kQuad] by block, a register of rows from `row` on, to [units][kQuads][blocks of a unit][kQuad],
// or [kQuads][kQuad] by block where a unit is less.
HELM_INLINE void put_scales(size_t row, const CodePairs* scales, float* to) {
  using All = typename IndicesTo<Simd::lanes>::Type;
  if constexpr (kParts == 4) {
    const CodePairs a = scales[0], b = scales[1], c = scales[2], d = scales[3];
    const CodePairs units[] = {parts_by_turns<0>(a, b, All()), parts_by_turns<1>(a, b, All()),
                               parts_by_turns<0>(c, d, All()), parts_by_turns<1>(c, d, All())};
    memcpy(to, units, sizeof(units));
  } else {
#pragma GCC unroll 4
    for (size_t b = 0; b < 4; ++b) memcpy(to + b * kDecodeRows + row, &scales[b], sizeof(scales[b]));
  }
}

// Codes and scales of a block to scratch.
inline void turn_keys(const char* row, Lines& ahead, const Coded& to) {
  constexpr size_t bytes = kDecodeRows * kCodedUnit;
  const size_t stride = to.stride, whole = to.width / kCodedUnit;
  char* turned = to.turned;
  copy_scales(row, to, to.halves);
  for (size_t unit = 0; unit < whole; ++unit, row += kCodedUnit, turned += bytes)
    turn_unit<kCodedUnit>(row, stride, ahead, turned);
  if (whole < to.units) turn_unit<kCodedUnit / 2>(row, stride, ahead, turned);
  each_scales(to.halves, to.blocks, [&](size_t first, size_t block, const CodePairs* scales) HELM_LAMBDA {
    put_scales(first, scales, to.scales + block * kDecodeRows);
  });
}

// Sums of products of a unit of Q quads and G queries: lane 4p + r of row r over part p.
template <int Q, int G>
HELM_INLINE void unit_sums(const char* turned, const int16_t* words, const int32_t* excess, Lines& ahead,
                           I (*sums)[Q]) {
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g)
#pragma GCC unroll 4
    for (I& sum : sums[g]) sum = Simd::words(excess + g * Simd::lanes);
#pragma GCC unroll 1
  for (int c = 0; c < 4; ++c, words += 4 * kQueryWords, turned += kQuads * kCodedUnit) {
    ahead.ask<kAskedMultiplying / (kQuads / Q)>();
    I query[G][2];
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g)
#pragma GCC unroll 2
      for (int odd = 0; odd < 2; ++odd) query[g][odd] = Simd::words(words + g * kQueryWords + odd * kQueryWords / 2);
#pragma GCC unroll 4
    for (int quad = 0; quad < Q; ++quad) {
      const auto codes = reinterpret_cast<CodeWords>(Simd::words(turned + quad * kCodedUnit));
      const I even = reinterpret_cast<I>((codes ^ 128) & 255), odd = reinterpret_cast<I>(codes >> 8);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) sums[g][quad] = Simd::dot(sums[g][quad], even, query[g][0]);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) sums[g][quad] = Simd::dot(sums[g][quad], odd, query[g][1]);
    }
  }
}

// Parts 0 and 1 of a, 2 and 3, and so on, then those of b, added.
template <class T, size_t... i>
HELM_INLINE T neighbours(T a, T b, Indices<i...>) {
  return __builtin_shufflevector(a, b, (i / 4 * 8 + i % 4)...) +
         __builtin_shufflevector(a, b, (i / 4 * 8 + 4 + i % 4)...);
}

template <class T>
HELM_INLINE T neighbours(T a, T b) {
  return neighbours(a, b, typename IndicesTo<Simd::lanes>::Type());
}

constexpr int kShared = kParts < 2 ? 1 : 2;  // quads in a register once parts of one block are added

// Adds sums of a unit of Q quads times its scales, the parts that have one scale first.
template <int Q>
HELM_INLINE void add_unit(const I* sums, const float* scales, FourRows* totals) {
#pragma GCC unroll 4
  for (int i = 0; i < Q / kShared; ++i, scales += Simd::lanes) {
    I sum = sums[i];
    if constexpr (kShared == 2)
      sum = reinterpret_cast<I>(
          neighbours(reinterpret_cast<CodePairs>(sums[2 * i]), reinterpret_cast<CodePairs>(sums[2 * i + 1])));
    const V total = reinterpret_cast<V>(totals[i]);
    totals[i] = reinterpret_cast<FourRows>(Simd::fma(Simd::floats(sum), Simd::load(scales), total));
  }
}

// Scores of a block from the totals of its quads, where they are still in parts.
HELM_INLINE void put_scores(FourRows* totals, float scale, float* scores) {
  if constexpr (kParts == 4) totals[0] = neighbours(totals[0], totals[1]);
#pragma GCC unroll 4
  for (size_t i = 0; i < kQuads / kParts; ++i) totals[i] *= scale;
  memcpy(scores, totals, kDecodeRows * sizeof(float));
}

// scores[h * kDecodeTile + r] of the block that was turned against G queries from `g` on.
template <int G>
HELM_INLINE void coded_scores_block(const Coded& q, size_t g, Lines ahead, float* scores) {
  constexpr int Q = kSums / G < static_cast<int>(kQuads) ? kSums / G : kQuads;
  FourRows totals[G][kQuads / kShared] = {};
  const int16_t* words = q.words_of(g);
  const int32_t* excess = q.excess_of(g);
  for (size_t unit = 0; unit < q.units; ++unit, words += 16 * kQueryWords, excess += 4 * Simd::lanes) {
    const char* turned = q.turned + unit * kDecodeRows * kCodedUnit;
    const float* scales = q.scales + unit * kCodedUnit / kScaled * kDecodeRows;
#pragma GCC unroll 2
    for (size_t quad = 0; quad < kQuads; quad += Q) {
      I sums[G][Q];
      unit_sums<Q, G>(turned + quad * kCodedUnit, words, excess, ahead, sums);
#pragma GCC unroll 4
      for (int h = 0; h < G; ++h)
        add_unit<Q>(sums[h], scales + quad / kShared * Simd::lanes, totals[h] + quad / kShared);
    }
  }
#pragma GCC unroll 4
  for (int h = 0; h < G; ++h) put_scores(totals[h], q.query_scales[g + h], scores + h * kDecodeTile);
}

// What a block of keys asks for, which is less than there is in one.
inline size_t asked_by_keys(const Coded& q) { return q.units * kDecodeRows * kCodedUnit; }

// Scores of a block of rows against all queries, four, two or one at a time; the first ones ask for what comes next.
inline void coded_scores(const char* rows, const Coded& q, Lines ahead, float* scores) {
  turn_keys(rows, ahead, q);
  size_t g = 0;
  const auto asked = [&] { return g == 0 ? ahead : Lines{rows}; };
  for (; g + 4 <= q.group; g += 4) coded_scores_block<4>(q, g, asked(), scores + g * kDecodeTile);
  for (; g + 2 <= q.group; g += 2) coded_scores_block<2>(q, g, asked(), scores + g * kDecodeTile);
  for (; g < q.group; ++g) coded_scores_block<1>(q, g, asked(), scores + g * kDecodeTile);
}

}  // namespace
}  // namespace helm
