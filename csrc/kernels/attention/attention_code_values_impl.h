// Weighted sums of decode attention over sets of two blocks of q8_0 values, for the instruction set whose Simd was
// included before.
#pragma once
#include "kernels/attention/attention_code_scores_impl.h"

namespace helm {
namespace {

constexpr size_t kSetRegisters = kSetRows / Simd::lanes;  // of one number a row

// Two blocks of values, and scores [group][kDecodeTile] of their rows.
struct CodedSet {
  const char *first, *second;
  const float* scores;
};

HELM_INLINE void copy_scales(const CodedSet& set, const Coded& to) {
  copy_scales(set.first, to, to.halves);
  copy_scales(set.second, to, to.halves + to.blocks * kDecodeRows);
}

// The scales that were copied, and the largest of every row.
HELM_INLINE void turn_scales(const Coded& to, V* most) {
  float* const rows = to.scales;
#pragma GCC unroll 8
  for (size_t i = 0; i < kSetRegisters; ++i) most[i] = Simd::zero();
#pragma GCC unroll 2
  for (size_t b = 0; b < 2; ++b)
    each_scales(to.halves + b * to.blocks * kDecodeRows, to.blocks,
                [&](size_t first, size_t block, const CodePairs* scales) HELM_LAMBDA {
                  const size_t row = b * kDecodeRows + first;
#pragma GCC unroll 4
                  for (size_t i = 0; i < 4; ++i) {
                    const V scale = reinterpret_cast<V>(scales[i]);
                    Simd::store(rows + (block + i) * kSetRows + row, scale);
                    most[row / Simd::lanes] = Simd::max(most[row / Simd::lanes], scale);
                  }
                });
}

// Weights exp(scores - max) of a set, [G][kDecodeTile] of heads from `head` on, times the scales of its rows; the
// weights are added to the lanes of to.sums.
template <int G>
HELM_INLINE void code_weights(const float* scores, const V* most, size_t index, size_t head, const Coded& to) {
  V share[G][kSetRegisters], largest[G];
  float* const weight_scales = to.weight_scales_of(index, head);
  float* const sums = to.sums + head * Simd::lanes;
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g)
#pragma GCC unroll 8
    for (size_t i = 0; i < kSetRegisters; ++i) {
      const V score = Simd::load(scores + g * kDecodeTile + i * Simd::lanes);
      share[g][i] = exp_of(Simd::sub(score, Simd::set(to.maxima[head + g])));
    }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
    V sum = Simd::load(sums + g * Simd::lanes);
    largest[g] = Simd::zero();
#pragma GCC unroll 8
    for (size_t i = 0; i < kSetRegisters; ++i) {
      sum = Simd::add(sum, share[g][i]);
      largest[g] = Simd::max(largest[g], Simd::mul(share[g][i], most[i]));
    }
    Simd::store(sums + g * Simd::lanes, sum);
  }
  float tops[G];
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) tops[g] = Simd::largest(largest[g]);
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
    const V factor = Simd::set(word_factor(tops[g]));
    weight_scales[g] = tops[g] * (1 / kCodedMost);
#pragma GCC unroll 8
    for (V& weights : share[g]) weights = Simd::mul(weights, factor);
  }
  int32_t* pairs = to.pairs_of(index, head);
  const float* scales = to.scales;
  for (size_t b = 0; b < to.blocks; ++b, scales += kSetRows, pairs += 4 * kSetPairs)
#pragma GCC unroll 4
    for (size_t i = 0; i < kSetRegisters; i += 2) {
      const V first = Simd::load(scales + i * Simd::lanes), second = Simd::load(scales + (i + 1) * Simd::lanes);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g)
        Simd::store_words(pairs + g * kSetPairs + i / 2 * Simd::lanes,
                          Simd::rounded_words(Simd::mul(share[g][i], first), Simd::mul(share[g][i + 1], second)));
    }
}

// The same of all query heads, of scales that were copied.
HELM_INLINE void code_weights(const float* scores, size_t index, const Coded& to) {
  V most[kSetRegisters];
  turn_scales(to, most);
  size_t g = 0;
  for (; g + 4 <= to.group; g += 4) code_weights<4>(scores + g * kDecodeTile, most, index, g, to);
  for (; g + 2 <= to.group; g += 2) code_weights<2>(scores + g * kDecodeTile, most, index, g, to);
  for (; g < to.group; ++g) code_weights<1>(scores + g * kDecodeTile, most, index, g, to);
}

// Sums of pairs of rows, times their weights, to natural order and to out.
HELM_INLINE void put_columns(const I* sums, V scale, float* out) {
  using All = typename IndicesTo<Simd::lanes>::Type;
  const auto low = reinterpret_cast<CodePairs>(sums[0]), high = reinterpret_cast<CodePairs>(sums[1]);
  const V first = Simd::floats(reinterpret_cast<I>(parts_by_turns<0>(low, high, All())));
  const V second = Simd::floats(reinterpret_cast<I>(parts_by_turns<1>(low, high, All())));
  Simd::store(out, Simd::fma(first, scale, Simd::load(out)));
  Simd::store(out + Simd::lanes, Simd::fma(second, scale, Simd::load(out + Simd::lanes)));
}

// sums += N half units of two rows times the weights of that pair for G heads.
template <int N, int G>
HELM_INLINE void add_rows(const uint8_t* row, size_t stride, const int32_t* pairs, I (*sums)[N][2]) {
  constexpr size_t half = kCodedUnit / 2;
#pragma GCC unroll 4
  for (size_t n = 0; n < N; ++n, row += half) {
    const auto a = reinterpret_cast<CodeWords>(Simd::signed_words(row));
    const auto b = reinterpret_cast<CodeWords>(Simd::signed_words(row + stride));
    const I low = reinterpret_cast<I>(interleaved<false>(a, b));
    const I high = reinterpret_cast<I>(interleaved<true>(a, b));
    const int32_t* weights = pairs + n * half / kScaled * 4 * kSetPairs;
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g, weights += kSetPairs) {
      const I weight = Simd::every(*weights);
      sums[g][n][0] = Simd::dot(sums[g][n][0], low, weight);
      sums[g][n][1] = Simd::dot(sums[g][n][1], high, weight);
    }
  }
}

// out[g][d...] += weighted sum of a set's rows: N half units of G heads whose weights and their scales are given. Rows
// come in the order of rounded_words: of two registers of weights four by turns.
template <int N, int G>
HELM_INLINE void coded_columns(const CodedSet& set, size_t d, const Coded& like, const int32_t* pairs,
                               const float* scales, Lines ahead, float* out) {
  constexpr size_t half = kCodedUnit / 2;
  const size_t stride = like.stride;
  pairs += d / kScaled * 4 * kSetPairs;
  I sums[G][N][2];
#pragma GCC unroll 4
  for (auto& head : sums)
#pragma GCC unroll 4
    for (auto& both : head) both[0] = both[1] = Simd::every(0);
#pragma GCC unroll 4
  for (size_t i = 0; i < kSetRows; i += 2 * Simd::lanes) {
    const size_t first[] = {i, i + Simd::lanes};
    const uint8_t* rows[2];
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v)
      rows[v] = reinterpret_cast<const uint8_t*>(first[v] < kDecodeRows ? set.first : set.second) +
                first[v] % kDecodeRows * stride + d;
    for (size_t part = 0; part < kParts; ++part)
#pragma GCC unroll 2
      for (int v = 0; v < 2; ++v)
#pragma GCC unroll 1
        for (int k = 0; k < 2; ++k, ++pairs, rows[v] += 2 * stride) {
          ahead.ask<N * kCodedUnit>();
          add_rows<N, G>(rows[v], stride, pairs, sums);
        }
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) put_columns(sums[g][n], Simd::set(scales[g]), out + g * like.width + d + n * half);
}

// out[G][width] += a set's rows, of heads from `g` on; asks for what comes next, unless that is null. Amid that
// `between` is called.
template <int G, class Between>
HELM_INLINE void coded_weighted(const CodedSet& set, size_t index, size_t g, const Coded& coded, Asking* ahead,
                                const Between& between, float* out) {
  constexpr int N = kSums / (2 * G) < 2 ? 1 : 2;  // more would leave nothing to do before the next weights are needed
  constexpr size_t columns = N * kCodedUnit / 2;
  const int32_t* pairs = coded.pairs_of(index, g);
  const float* scales = coded.weight_scales_of(index, g);
  const auto part = [&](size_t width) HELM_LAMBDA {
    return ahead == nullptr ? Lines{set.first}
                            : ahead->part(kSetRows * coded.stride * width / coded.width, kSetRows * width);
  };
  out += g * coded.width;
  size_t d = 0;
  for (; d + columns <= coded.width; d += columns) {
    coded_columns<N, G>(set, d, coded, pairs, scales, part(columns), out);
    if (d == 0) between();
  }
  if (d == 0) between();
  for (; d < coded.width; d += kCodedUnit / 2)
    coded_columns<1, G>(set, d, coded, pairs, scales, part(kCodedUnit / 2), out);
}

// out[group][width] += the rows of `set`, whose weights are coded; codes those of the set after it, unless it is null,
// on the way: each step of that waits long for the one before.
inline void coded_values(const CodedSet& set, const CodedSet* next, size_t index, const Coded& all, Asking* ahead,
                         float* out) {
  if (next != nullptr) copy_scales(*next, all);
  size_t g = 0;
  const auto asking = [&] { return g == 0 ? ahead : nullptr; };
  const auto prepare = [&] {
    if (g == 0 && next != nullptr) code_weights(next->scores, index + 1, all);
  };
  for (; g + 4 <= all.group; g += 4) coded_weighted<4>(set, index, g, all, asking(), prepare, out);
  for (; g + 2 <= all.group; g += 2) coded_weighted<2>(set, index, g, all, asking(), prepare, out);
  for (; g < all.group; ++g) coded_weighted<1>(set, index, g, all, asking(), prepare, out);
}

}  // namespace
}  // namespace helm
