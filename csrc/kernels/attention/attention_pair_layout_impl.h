// Queries, keys, values and the weights between them as pairs of bf16, for attention of prompts and the instruction set
// whose Simd was included before.
//
// A number of a factor is a pair: of neighbouring columns of q and of K, and of two positions' weights and values.
#pragma once
#include "kernels/attention/attention_prompt_impl.h"

namespace helm {
namespace {

struct PairLayout {
  HELM_INLINE static V exponential(V x) { return exp_roughly(x); }

  // A panel is [width / 2][kRowsTogether]; columns beyond head_dim and rows beyond `count` are zero.
  static void pack(const PrefillArgs& a, const PrefillScratch& s, size_t first, size_t count) {
    const size_t depth = s.width / 2;
    const V factor = Simd::set(a.scoring.factor);
    auto* rows = reinterpret_cast<uint16_t*>(s.keys);  // [kRowsTogether][width]: no keys are there yet
    memset(rows, 0, kRowsTogether * s.width * sizeof(uint16_t));
    for (size_t r = 0; r < count; ++r) {
      const float* q = a.q + query_at(a, first + r);
      for (size_t d = 0; d < a.head_dim; d += Simd::lanes) {
        const size_t n = smaller(Simd::lanes, a.head_dim - d);
        Simd::store_bf16(rows + r * s.width + d,
                         Simd::mul(n < Simd::lanes ? load_some(q + d, n, 0) : Simd::load(q + d), factor));
      }
    }
    transpose_words(reinterpret_cast<const int32_t*>(rows), kRowsTogether, depth,
                    reinterpret_cast<int32_t*>(s.q) + first * depth, kRowsTogether);
  }

  // [kPrefillTile][width / 2]
  static void load_keys(const PrefillArgs& a, const PrefillScratch& s, const char* rows, size_t count) {
    auto* tile = reinterpret_cast<int32_t*>(s.keys);
    widened(a, s, rows, count, s.keys, [&](size_t position, const float* row) {
      auto* to = reinterpret_cast<uint16_t*>(tile + position * s.width / 2);
      for (size_t d = 0; d < 2 * s.width; d += Simd::lanes) Simd::store_bf16(to + d, Simd::load(row + d));
    });
  }

  // [kPrefillTile / 2][width]; an odd last position is paired with zeros.
  static void load_values(const PrefillArgs& a, const PrefillScratch& s, const char* rows, size_t count) {
    auto* tile = reinterpret_cast<int32_t*>(s.values);
    widened(a, s, rows, count, s.values, [&](size_t position, const float* row) {
      for (size_t d = 0; d < s.width; d += Simd::lanes)
        Simd::store_words(tile + position / 2 * s.width + d,
                          Simd::pair(Simd::load(row + d), Simd::load(row + s.width + d)));
    });
  }

  // Calls use(position, f32 rows of it and of the next) for every other position. The rows are in the half of `tile`
  // that its pairs leave free, in one place that stays in L1. Columns of keys beyond head_dim are zero, as is a row
  // beyond `count`.
  template <class Use>
  static void widened(const PrefillArgs& a, const PrefillScratch& s, const char* rows, size_t count, float* tile,
                      const Use& use) {
    float* wide = tile + kPrefillTile / 2 * s.width;
    for (size_t first = 0; first < count; first += 2) {
      const size_t n = smaller(2, count - first);
      load_rows(a, rows + first * row_size(a.format, a.head_dim), n, s.width, wide);
      if (n == 1) memset(wide + s.width, 0, s.width * sizeof(float));
      use(first, wide);
    }
  }

  // [kPrefillTile / 2][kRowsTogether], where the weights were; an odd last position is paired with zeros.
  static const int32_t* weights(const PrefillArgs&, const PrefillScratch& s, size_t count) {
    auto* pairs = reinterpret_cast<int32_t*>(s.scores);
    for (size_t p = 0; p < count; p += 2)
      for (size_t r = 0; r < kRowsTogether; r += Simd::lanes) {
        const float* at = s.scores + p * kRowsTogether + r;
        const V next = p + 1 < count ? Simd::load(at + kRowsTogether) : Simd::zero();
        Simd::store_words(pairs + p / 2 * kRowsTogether + r, Simd::pair(Simd::load(at), next));
      }
    return pairs;
  }
};

}  // namespace
}  // namespace helm
