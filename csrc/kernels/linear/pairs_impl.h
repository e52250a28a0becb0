// Products of quantised weights with activations two by two, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/linear/codes_impl.h"

namespace helm {
namespace {

// A run's activations, in the order in which products take them: as they are.
inline void arrange_words(int16_t*) {}

// Products of T tokens with span s, added in kChains chains. x: a run as pack_words leaves it.
template <class C, int T, int kChains>
HELM_INLINE void add_products(const C& code, size_t s, const int32_t* x, I (*sum)[T][kVectors]) {
  const int32_t* words = x + (C::span == kRun ? 0 : s % 2 * 8) * T;
  code.pairs(s, [&](size_t p, int i, I w) HELM_LAMBDA {
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) sum[p % kChains][t][i] = Simd::dot_every(sum[p % kChains][t][i], w, words + p * T + t);
  });
}

}  // namespace
}  // namespace helm
