// Attention of prompts with factors as 16-bit numbers, whose products are added in whole numbers, for the instruction
// set whose Simd was included before.
//
// A query and a key each have a scale with which the sum of their products, no larger than the product of their
// lengths, has 31 bits: what is wrapped around on the way comes back. Values of a position have a scale, which is
// counted in the weights of rows; these share one over a tile that is as fine as their sum allows, so that each is
// exact to a thousandth of their mean. What a row gets depends on nothing that it does not see.
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
    const V value = Simd::floats(sum), scale = Simd::set(by.of_x[t]);
    return y == nullptr ? Simd::mul(Simd::mul(value, scale), Simd::load(by.of_w + column))
                        : Simd::fma(value, scale, Simd::load(y));
  }
};

struct WordFactors : RegisterProducts<WordNumbers, 2> {
  static constexpr float kLength = 46000.0f;  // of a query and of a key: the product of two is below 2^31
  static constexpr float kMost = 32760.0f;    // of a number of theirs, and of a weight, which may be 3e-6 too large
  // Weights of a row over a tile may add up to so many of the largest: kMost * kMostWeights * kMostValue, and what
  // rounding adds, is below 2^31.
  static constexpr float kMostWeights = 8.0f, kMostValue = 8000.0f;

  HELM_INLINE static V exponential(V x) { return exp_roughly(x); }

  // Of x[width]; a number that is none may be passed over.
  static float largest_magnitude(const float* x, size_t width) {
    V largest = Simd::zero();
    for (size_t d = 0; d < width; d += Simd::lanes) {
      const V v = Simd::load(x + d);
      largest = Simd::max(largest, Simd::max(v, Simd::sub(Simd::zero(), v)));
    }
    return Simd::largest(largest);
  }

  // x[width] as whole numbers; returns their scale, which is no number where one of x is none.
  static float to_words(const float* x, size_t width, int16_t* to) {
    V squares = Simd::zero();
    for (size_t d = 0; d < width; d += Simd::lanes) squares = Simd::fma(Simd::load(x + d), Simd::load(x + d), squares);
    const float length = std::sqrt(Simd::sum(squares)), most = largest_magnitude(x, width);
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
    for (size_t p = 0; p < count; p += 2) {
      const float *pair = s.values + p * s.width, *next = pair + s.width;
      const V first = Simd::set(scale_values(s, p)), second = Simd::set(p + 1 < count ? scale_values(s, p + 1) : 0.0f);
      for (size_t d = 0; d < s.width; d += Simd::lanes)
        Simd::store_words(s.values + p / 2 * s.width + d, Simd::word_pair(Simd::mul(Simd::load(pair + d), first),
                                                                          Simd::mul(Simd::load(next + d), second)));
    }
  }
  // Sets the scale of a position's values, no number where one of them is none; returns what they are multiplied by.
  static float scale_values(const PrefillScratch& s, size_t position) {
    const float* values = s.values + position * s.width;
    V sound = Simd::zero();
    for (size_t d = 0; d < s.width; d += Simd::lanes) sound = Simd::fma(Simd::load(values + d), Simd::zero(), sound);
    const float most = largest_magnitude(values, s.width);
    s.value_scales[position] = most / kMostValue + Simd::sum(sound);
    return most >= kLeast ? kMostValue / most : 0.0f;
  }

  // [kPrefillTile / 2][kRowsTogether] pairs of positions, where the weights were; an odd last one is paired with zeros.
  static const int32_t* weights(const PrefillArgs&, const PrefillScratch& s, size_t count) {
    auto* pairs = reinterpret_cast<int32_t*>(s.scores);
    for (size_t r = 0; r < kRowsTogether; r += Simd::lanes) {
      float* column = s.scores + r;
      V sum = Simd::zero(), most = Simd::set(kLeast);
      for (size_t p = 0; p < count; ++p) {
        const V weight = Simd::mul(Simd::load(column + p * kRowsTogether), Simd::set(s.value_scales[p]));
        Simd::store(column + p * kRowsTogether, weight);
        sum = Simd::add(sum, weight);
        most = Simd::max(most, weight);
      }
      // The largest becomes kMost, or all together kMost * kMostWeights, whichever leaves smaller numbers.
      const V scale = Simd::mul(Simd::max(most, Simd::mul(sum, Simd::set(1 / kMostWeights))), Simd::set(1 / kMost));
      Simd::store(s.weight_scales + r, Simd::fma(sum, Simd::zero(), scale));
      const V factor = Simd::div(Simd::set(1.0f), scale);
      for (size_t p = 0; p < count; p += 2) {
        const float* at = column + p * kRowsTogether;
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
