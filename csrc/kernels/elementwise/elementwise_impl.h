// Norms, rotation, activations and conversions, for the instruction set whose Simd was included before.
#pragma once
#include <math.h>

#include "kernels/elementwise/activation_impl.h"
#include "kernels/linear/linear_impl.h"

namespace helm {
namespace {

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

void activate(Activation kind, const float* gate, float* up, size_t n) {
  if (kind == Activation::silu) activate_as<Activation::silu>(gate, up, n);
  if (kind == Activation::relu) activate_as<Activation::relu>(gate, up, n);
  if (kind == Activation::gelu) activate_as<Activation::gelu>(gate, up, n);
  if (kind == Activation::gelu_tanh) activate_as<Activation::gelu_tanh>(gate, up, n);
  if (kind == Activation::relu2) activate_as<Activation::relu2>(gate, up, n);
  if (kind == Activation::swiglu_oai) activate_as<Activation::swiglu_oai>(gate, up, n);
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
