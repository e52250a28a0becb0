// How many products the units do when registers are all they read, for the instruction set whose Simd was included
// before: what a product of many tokens is compared with.
#pragma once
#include "kernels/linear/codes_impl.h"

namespace helm {
namespace {

constexpr int kPeakChains = Simd::lanes == 16 ? 20 : 12;  // more than units times cycles of latency, within registers

// Tells the compiler that a register may have changed, so that no two steps are known to be the same.
template <class T>
HELM_INLINE void touch(T& value) {
#if defined(__x86_64__)
  __asm__ volatile("" : "+v"(value));
#elif defined(__aarch64__)
  __asm__ volatile("" : "+w"(value));
#else
  __asm__ volatile("" : "+m"(value));
#endif
}

// `rounds` times a step in every chain: step(sum, a, b).
template <class Sum, class Factor, class Step>
HELM_INLINE void step_chains(size_t rounds, Sum start, Factor a, Factor b, const Step& step) {
  Sum sum[kPeakChains];
#pragma GCC unroll 32
  for (Sum& each : sum) {
    each = start;
    touch(each);
  }
  for (size_t round = 0; round < rounds; ++round)
#pragma GCC unroll 32
    for (Sum& each : sum) {
      touch(a);
      each = step(each, a, b);
    }
#pragma GCC unroll 32
  for (Sum& each : sum) touch(each);
}

void peak_floats(size_t rounds) {
  step_chains(rounds, Simd::zero(), Simd::set(1.0f), Simd::set(0.5f),
              [](V sum, V a, V b) HELM_LAMBDA { return Simd::fma(a, b, sum); });
}

void peak_words(size_t rounds) {
  step_chains(rounds, Simd::every(0), Simd::every(1), Simd::every(1),
              [](I sum, I a, I b) HELM_LAMBDA { return Simd::dot(sum, a, b); });
}

void peak_bytes(size_t rounds) {
  step_chains(rounds, Simd::every(0), Simd::every(0x01010101), Simd::every(0x01010101),
              [](I sum, I a, I b) HELM_LAMBDA { return Simd::dot_bytes(sum, a, b); });
}

constexpr Peak kPeakFloats = {kPeakChains * Simd::lanes, peak_floats};
constexpr Peak kPeakWords = {2 * kPeakChains * Simd::lanes, peak_words};
constexpr Peak kPeakBytes = {4 * kPeakChains * Simd::lanes, peak_bytes};

}  // namespace
}  // namespace helm
