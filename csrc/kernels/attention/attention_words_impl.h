// Attention of prompts with factors as 16-bit numbers, whose products are added in whole numbers, for the instruction
// set whose Simd was included before.
//
// A query and a key each have a scale with which the sum of their products, no larger than the product of their
// lengths, has 31 bits: what is wrapped around on the way comes back. Values of a tile share a scale, and so do the
// weights of a row over it, which are as fine as their sum allows: each is exact to a thousandth of their mean.
#pragma once
#include <cmath>

#include "kernels/attention/attention_prompt_impl.h"
#include "kernels/linear/words_impl.h"

namespace helm {
namespace {

struct WordNumbers {
  using Number = int32_t;
  using Register = I;
  using Sum = I;
  static Register load(const Number* p) { return Simd::words(p); }
  static Register every(Number x) { return Simd::every(x); }
  static Sum begin(const float*) { return Simd::every(0); }
  static Sum add_product(Sum sum, Register w, Register x) { return Simd::dot_in_loop(sum, w, x); }
  HELM_INLINE static V end(Sum sum, const float* y, const Scales& by, size_t t, size_t column) {
    const V value = Simd::mul(Simd::floats(sum), Simd::set(by.of_x[t]));
    return y == nullptr ? Simd::mul(value, Simd::load(by.of_w + column)) : Simd::add(Simd::load(y), value);
  }
};

struct WordFactors : RegisterProducts<WordNumbers, 2> {
  static constexpr float kLength = 46000.0f;  // of a query and of a key: the product of two is below 2^31
  static constexpr float kMost = 32760.0f;    // of a number of theirs, and of a weight, which may be 3e-6 too large
  // A row's weights over a tile are as fine as one of them may be while their sum is no more than kMostWeights:
  // kMost * kMostWeights * kMostValue, and what rounding adds, is below 2^31.
  static constexpr float kMostWeights = 8.0f, kMostValue = 8000.0f;

  HELM_INLINE static V exponential(V x) { return exp_roughly(x); }

  // x[width] as whole numbers; returns their scale, which is no number where one of x is none.
  static float to_words(const float* x, size_t width, int16_t* to) {
    V squares = Simd::zero(), largest = Simd::zero();
    for (size_t d = 0; d < width; d += Simd::lanes) {
      const V v = Simd::load(x + d);
      squares = Simd::fma(v, v, squares);
      largest = Simd::max(largest, Simd::max(v, Simd::sub(Simd::zero(), v)));
    }
    const float length = std::sqrt(Simd::sum(squares)), most = Simd::largest(largest);
    const float scale = length / kLength > most / kMost ? length / kLength : most / kMost;
    const V inverse = Simd::set(scale >= kLeast ? 1 / scale : 0.0f);
    for (size_t d = 0; d < width; d += Simd::lanes) Simd::store_whole(to + d, Simd::mul(Simd::load(x + d), inverse));
    return length == length ? scale : length;
  }

  // A panel is [width / 2][kRowsTogether] pairs of columns; columns beyond head_dim and rows beyond `count` are zero.
  static void pack(const PrefillArgs& a, const PrefillScratch& s, size_t first, size_t count) {
    auto* rows = reinterpret_cast<int16_t*>(s.keys);  // [kRowsTogether][width], then f32 of one: no keys are there yet
    float* wide = s.keys + kRowsTogether * s.width / 2;
    memset(rows, 0, kRowsTogether * s.width * sizeof(int16_t));
    memset(wide, 0, s.width * sizeof(float));
    for (size_t r = 0; r < count; ++r) {
      const float* q = a.q + query_at(a, first + r);
      for (size_t d = 0; d < a.head_dim; ++d) wide[d] = q[d] * a.scoring.factor;
      s.query_scales[first + r] = to_words(wide, s.width, rows + r * s.width);
    }
    for (size_t r = count; r < kRowsTogether; ++r) s.query_scales[first + r] = 0;
    transpose_words(reinterpret_cast<const int32_t*>(rows), kRowsTogether, s.width / 2,
                    reinterpret_cast<int32_t*>(s.q) + first * s.width / 2, kRowsTogether);
  }

  // [kPrefillTile][width / 2] pairs of columns.
  static void load_keys(const PrefillArgs& a, const PrefillScratch& s, const char* rows, size_t count) {
    float* wide = s.keys + kPrefillTile / 2 * s.width;  // a row whose columns beyond head_dim are zero
    for (size_t p = 0; p < count; ++p) {
      load_rows(a, rows + p * row_size(a.format, a.head_dim), 1, s.width, wide);
      s.key_scales[p] = to_words(wide, s.width, reinterpret_cast<int16_t*>(s.keys + p * s.width / 2));
    }
  }

  // [kPrefillTile / 2][width] pairs of positions, where their f32 were; an odd last one is paired with zeros.
  static void load_values(const PrefillArgs& a, const PrefillScratch& s, const char* rows, size_t count) {
    load_rows(a, rows, count, s.width, s.values);
    if (count % 2 == 1) memset(s.values + count * s.width, 0, s.width * sizeof(float));
    V largest = Simd::zero(), sound = Simd::zero();
    for (size_t i = 0; i < count * s.width; i += Simd::lanes) {
      const V v = Simd::load(s.values + i);
      largest = Simd::max(largest, Simd::max(v, Simd::sub(Simd::zero(), v)));
      sound = Simd::fma(v, Simd::zero(), sound);
    }
    const float most = Simd::largest(largest);
    *s.value_scale = most / kMostValue + Simd::sum(sound);
    const V inverse = Simd::set(most >= kLeast ? kMostValue / most : 0.0f);
    for (size_t p = 0; p < count; p += 2) {
      const float* pair = s.values + p * s.width;
      for (size_t d = 0; d < s.width; d += Simd::lanes)
        Simd::store_words(s.values + p / 2 * s.width + d,
                          Simd::word_pair(Simd::mul(Simd::load(pair + d), inverse),
                                          Simd::mul(Simd::load(pair + s.width + d), inverse)));
    }
  }

  // [kPrefillTile / 2][kRowsTogether] pairs of positions, where the weights were; an odd last one is paired with zeros.
  static const int32_t* weights(const PrefillArgs&, const PrefillScratch& s, size_t count) {
    auto* pairs = reinterpret_cast<int32_t*>(s.scores);
    for (size_t r = 0; r < kRowsTogether; r += Simd::lanes) {
      const V one = Simd::set(1.0f), sum = Simd::load(s.added + r), least = Simd::set(kLeast);
      const V most = Simd::mul(Simd::set(kMost), Simd::min(Simd::max(sum, one), Simd::set(kMostWeights)));
      const V factor = Simd::div(most, Simd::max(sum, least));
      Simd::store(s.added + r, Simd::div(Simd::set(*s.value_scale), factor));
      for (size_t p = 0; p < count; p += 2) {
        const float* at = s.scores + p * kRowsTogether + r;
        const V next = p + 1 < count ? Simd::load(at + kRowsTogether) : Simd::zero();
        Simd::store_words(pairs + p / 2 * kRowsTogether + r,
                          Simd::word_pair(Simd::mul(Simd::load(at), factor), Simd::mul(next, factor)));
      }
    }
    return pairs;
  }
};

void prefill_words(const PrefillArgs& a) { prefill_of<WordFactors>(a); }

constexpr Kernels with_prompt_words(Kernels table) {
  table.prefill_words = prefill_words;
  return table;
}

}  // namespace
}  // namespace helm
