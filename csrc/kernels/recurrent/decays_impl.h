// Time steps and decays of recurrent mixers, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/elementwise/vector_math_impl.h"
#include "kernels/mixers.h"

namespace helm {
namespace {

// Of `count` numbers that share a slope, or each have their own.
inline void decays_of(const DecayArgs& a, size_t begin, size_t n) {
  const V longest = Simd::set(a.longest);
  const bool shared = a.per > 1;
  const V one = exp_or_nan(Simd::set(a.a_log[begin / a.per]));
  const float *raw = a.raw + begin, *bias = a.bias + begin;
  float* dt = a.dt == nullptr ? nullptr : a.dt + begin;
  for_registers(a.decay + begin, n, [&](V, size_t i, size_t count) {
    const V slope = shared ? one : exp_or_nan(load_count(a.a_log + begin, i, count));
    const V sum = Simd::add(load_count(raw, i, count), load_count(bias, i, count));
    const V step = Simd::min(longest, softplus_of(sum));
    if (dt != nullptr) count == Simd::lanes ? Simd::store(dt + i, step) : store_some(dt + i, count, step);
    return Simd::sub(Simd::zero(), Simd::mul(slope, step));
  });
}

void decays(const DecayArgs& a) {
  const size_t run = a.per > 1 ? a.per : a.n;
  for (size_t begin = 0; begin < a.n; begin += run) decays_of(a, begin, run);
}

}  // namespace
}  // namespace helm
