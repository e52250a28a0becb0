// Functions of a register of numbers, for the instruction set whose Simd was included before.
#pragma once
#include <initializer_list>

#include <math.h>

#include "kernels/kernels.h"
#include "kernels/simd/inlined.h"

namespace helm {
namespace {

using V = Simd::V;

// exp(x) to 2e-7 relative; x is clamped to [-87, 88]. Cephes' polynomial on |r| <= ln(2) / 2.
HELM_INLINE V exp_of(V x) {
  x = Simd::min(Simd::max(x, Simd::set(-87.0f)), Simd::set(88.0f));
  const V magic = Simd::set(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
  const V shifted = Simd::fma(x, Simd::set(1.44269504f), magic);
  const V n = Simd::sub(shifted, magic);
  V r = Simd::fma(n, Simd::set(-0.693359375f), x);
  r = Simd::fma(n, Simd::set(2.12194440e-4f), r);
  V p = Simd::fma(Simd::set(1.9875691500e-4f), r, Simd::set(1.3981999507e-3f));
  p = Simd::fma(p, r, Simd::set(8.3334519073e-3f));
  p = Simd::fma(p, r, Simd::set(4.1665795894e-2f));
  p = Simd::fma(p, r, Simd::set(1.6666665459e-1f));
  p = Simd::fma(p, r, Simd::set(5.0000001201e-1f));
  p = Simd::add(Simd::fma(Simd::mul(r, r), p, r), Simd::set(1.0f));
  return Simd::scale_exponent(p, shifted);
}

// exp(x) of x <= 0 to 3e-6 relative, less than a 600th of what rounding to bf16 moves; below -87 it is exp(-87).
HELM_INLINE V exp_roughly(V x) {
  x = Simd::max(x, Simd::set(-87.0f));
  const V magic = Simd::set(12582912.0f);  // as above
  const V shifted = Simd::fma(x, Simd::set(1.44269504f), magic);
  const V r = Simd::fma(Simd::sub(shifted, magic), Simd::set(-0.69314718f), x);
  V p = Simd::fma(Simd::set(4.145840183e-2f), r, Simd::set(1.679103076e-1f));
  p = Simd::fma(p, r, Simd::set(5.000436902e-1f));
  p = Simd::fma(p, r, Simd::set(9.999633431e-1f));
  p = Simd::fma(p, r, Simd::set(9.999992847e-1f));
  return Simd::scale_exponent(p, shifted);
}

// exp(x) of finite x; NaN stays NaN.
inline V exp_or_nan(V x) { return Simd::fma(x, Simd::zero(), exp_of(x)); }

// log(1 + exp(x)) to 5e-7 relative; NaN stays NaN. log(1 + u) = 2 artanh(s), s = u / (2 + u) <= 1/3, by its series.
inline V softplus_of(V x) {
  const V magnitude = Simd::max(Simd::sub(Simd::zero(), x), x);
  const V u = exp_of(Simd::sub(Simd::zero(), magnitude));
  const V s = Simd::div(u, Simd::add(u, Simd::set(2.0f))), square = Simd::mul(s, s);
  V series = Simd::set(1.0f / 15);
  for (const float term : {1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3, 1.0f})
    series = Simd::fma(series, square, Simd::set(term));
  return Simd::fma(Simd::add(s, s), series, Simd::max(Simd::zero(), x));
}

// A vector of x[i..n) padded with `rest`.
inline V load_some(const float* x, size_t n, float rest) {
  float values[Simd::lanes];
  for (size_t i = 0; i < Simd::lanes; ++i) values[i] = i < n ? x[i] : rest;
  return Simd::load(values);
}

inline void store_some(float* x, size_t n, V v) {
  float values[Simd::lanes];
  Simd::store(values, v);
  for (size_t i = 0; i < n; ++i) x[i] = values[i];
}

// x[n] = use(register of x, index of its first number), whole registers and the rest.
template <class Use>
HELM_INLINE void for_registers(float* x, size_t n, const Use& use) {
  size_t i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) Simd::store(x + i, use(Simd::load(x + i), i, Simd::lanes));
  if (i < n) store_some(x + i, n - i, use(load_some(x + i, n - i, 0), i, n - i));
}

// `count` numbers of x from index i on, as for_registers counts.
HELM_INLINE V load_count(const float* x, size_t i, size_t count) {
  return count == Simd::lanes ? Simd::load(x + i) : load_some(x + i, count, 0);
}

// x / (1 + exp(-z)): silu with z = x.
inline V gated_by_sigmoid(V x, V z) {
  const V one = Simd::set(1.0f);
  return Simd::div(x, Simd::add(one, exp_of(Simd::sub(Simd::zero(), z))));
}

}  // namespace
}  // namespace helm
