// Activations between the matrices of a network, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/elementwise/vector_math_impl.h"

namespace helm {
namespace {

inline V gelu_tanh_of(V x) {  // 0.5 x (1 + tanh u) = x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3)
  const V cubic = Simd::fma(Simd::mul(Simd::mul(x, x), x), Simd::set(0.044715f), x);
  return gated_by_sigmoid(x, Simd::mul(cubic, Simd::set(1.5957691216f)));
}

inline V gelu_of(V x) {
  float values[Simd::lanes];
  Simd::store(values, x);
  for (auto& v : values) v = 0.5f * v * (1.0f + erff(v * 0.70710678f));
  return Simd::load(values);
}

inline V relu2_of(V x) {
  const V positive = Simd::max(Simd::zero(), x);
  return Simd::mul(positive, positive);
}

template <Activation A>
V activation_of(V x) {
  if constexpr (A == Activation::silu) return gated_by_sigmoid(x, x);
  if constexpr (A == Activation::relu) return Simd::max(x, Simd::zero());
  if constexpr (A == Activation::gelu) return gelu_of(x);
  if constexpr (A == Activation::relu2) return relu2_of(x);
  if constexpr (A == Activation::swiglu_oai) return gated_by_sigmoid(x, Simd::mul(x, Simd::set(1.702f)));
  return gelu_tanh_of(x);
}

template <Activation A>
V activated(V gate, V up, bool gated) {
  if (!gated) return activation_of<A>(up);
  if constexpr (A == Activation::swiglu_oai) up = Simd::add(up, Simd::set(1.0f));
  return Simd::mul(activation_of<A>(gate), up);
}

template <Activation A>
void activate_as(const float* gate, float* up, size_t n) {
  const bool gated = gate != nullptr;
  const float* source = gated ? gate : up;
  size_t i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes)
    Simd::store(up + i, activated<A>(Simd::load(source + i), Simd::load(up + i), gated));
  if (i < n)
    store_some(up + i, n - i, activated<A>(load_some(source + i, n - i, 0), load_some(up + i, n - i, 0), gated));
}

}  // namespace
}  // namespace helm
