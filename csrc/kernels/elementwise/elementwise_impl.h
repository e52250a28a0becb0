// Norms, rotation, activations and conversions, for the instruction set whose Simd was included before.
#pragma once
#include <math.h>

#include "kernels/linear/linear_impl.h"

namespace helm {
namespace {

// exp(x) to 2e-7 relative; x is clamped to [-87, 88]. Cephes' polynomial on |r| <= ln(2) / 2.
inline V exp_of(V x) {
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

inline float sum_of(const float* x, size_t n) {
  V acc = Simd::zero();
  size_t i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) acc = Simd::add(acc, Simd::load(x + i));
  return Simd::sum(Simd::add(acc, load_some(x + i, n - i, 0)));
}

inline float squares_of(const float* x, float mean, size_t n) {
  const V center = Simd::set(mean);
  V acc[4] = {Simd::zero(), Simd::zero(), Simd::zero(), Simd::zero()};
  size_t i = 0;
  for (; i + 4 * Simd::lanes <= n; i += 4 * Simd::lanes)
    for (int j = 0; j < 4; ++j) {
      const V d = Simd::sub(Simd::load(x + i + j * Simd::lanes), center);
      acc[j] = Simd::fma(d, d, acc[j]);
    }
  float rest = 0;
  for (; i < n; ++i) rest += (x[i] - mean) * (x[i] - mean);
  return rest + Simd::sum(Simd::add(Simd::add(acc[0], acc[1]), Simd::add(acc[2], acc[3])));
}

void norm(NormKind kind, const float* x, const float* weight, const float* bias, float eps, size_t n, float* out) {
  const float mean = kind == NormKind::layer ? sum_of(x, n) / static_cast<float>(n) : 0.0f;
  const float scale = 1.0f / sqrtf(squares_of(x, mean, n) / static_cast<float>(n) + eps);
  if (bias == nullptr)
    for (size_t i = 0; i < n; ++i) out[i] = (x[i] - mean) * scale * weight[i];
  else
    for (size_t i = 0; i < n; ++i) out[i] = (x[i] - mean) * scale * weight[i] + bias[i];
}

void rope(float* x, const float* cos, const float* sin, size_t half) {
  for (size_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

// x / (1 + exp(-z)): silu with z = x.
inline V gated_by_sigmoid(V x, V z) {
  const V one = Simd::set(1.0f);
  return Simd::div(x, Simd::add(one, exp_of(Simd::sub(Simd::zero(), z))));
}

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

template <Activation A>
V activation_of(V x) {
  if constexpr (A == Activation::silu) return gated_by_sigmoid(x, x);
  if constexpr (A == Activation::relu) return Simd::max(x, Simd::zero());
  if constexpr (A == Activation::gelu) return gelu_of(x);
  return gelu_tanh_of(x);
}

template <Activation A>
V activated(V gate, V up, bool gated) {
  return gated ? Simd::mul(activation_of<A>(gate), up) : activation_of<A>(up);
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

void activate(Activation kind, const float* gate, float* up, size_t n) {
  if (kind == Activation::silu) activate_as<Activation::silu>(gate, up, n);
  if (kind == Activation::relu) activate_as<Activation::relu>(gate, up, n);
  if (kind == Activation::gelu) activate_as<Activation::gelu>(gate, up, n);
  if (kind == Activation::gelu_tanh) activate_as<Activation::gelu_tanh>(gate, up, n);
}

void add(float* x, const float* addend, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] += addend[i];
}

void scale(float* x, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] *= factor;
}

void narrow(Format format, const float* source, size_t n, void* target) {
  if (format == Format::f32) {
    memcpy(target, source, n * 4);
    return;
  }
  uint16_t* halves = static_cast<uint16_t*>(target);
  const bool f16 = format == Format::f16;
  size_t i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes)
    f16 ? Simd::store_f16(halves + i, Simd::load(source + i)) : Simd::store_bf16(halves + i, Simd::load(source + i));
  for (; i < n; ++i) halves[i] = f16 ? narrow_f16(source[i]) : narrow_bf16(source[i]);
}

size_t argmax(const float* x, size_t n) {
  V best = Simd::set(x[0]);
  size_t i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) best = Simd::max(best, Simd::load(x + i));
  const float top = Simd::largest(Simd::max(best, load_some(x + i, n - i, x[0])));
  for (i = 0; i < n; ++i)
    if (x[i] == top) return i;
  return 0;  // only NaNs
}

unsigned long long read(const void* data, size_t bytes) { return Simd::read(static_cast<const char*>(data), bytes); }

}  // namespace
}  // namespace helm
