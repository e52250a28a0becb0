// Gates, norms with gates and clamped activations, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/elementwise/activation_impl.h"
#include "kernels/mixers.h"

namespace helm {
namespace {

inline V gated(GateKind kind, V x, V z) {
  if (kind == GateKind::sigmoid) return gated_by_sigmoid(x, z);
  if (kind == GateKind::silu) return Simd::mul(x, gated_by_sigmoid(z, z));
  return x;
}

void gate(GateKind kind, float* x, const float* z, size_t n) {
  for_registers(x, n, [&](V v, size_t i, size_t count) { return gated(kind, v, load_count(z, i, count)); });
}

void gate_row(GateKind kind, float* x, float z, size_t n) {
  for_registers(x, n, [&](V v, size_t, size_t) { return gated(kind, v, Simd::set(z)); });
}

void multiply(float* x, const float* factors, size_t n) {
  for_registers(x, n, [&](V v, size_t i, size_t count) { return Simd::mul(v, load_count(factors, i, count)); });
}

void add_weighted(float* y, const float* x, float weight, size_t n) {
  const V factor = Simd::set(weight);
  for_registers(y, n, [&](V v, size_t i, size_t count) { return Simd::fma(factor, load_count(x, i, count), v); });
}

// NaN is a second argument of min and max, which pass it on.
template <Activation A>
void activate_within_as(float limit, const float* gate, float* up, size_t n) {
  const V most = Simd::set(limit), least = Simd::set(-limit);
  for_registers(up, n, [&](V v, size_t i, size_t count) {
    const V inner = Simd::max(least, Simd::min(most, v));
    return gate == nullptr ? activated<A>(v, inner, false)
                           : activated<A>(Simd::min(most, load_count(gate, i, count)), inner, true);
  });
}

void activate_within(Activation kind, float limit, const float* gate, float* up, size_t n) {
  switch (kind) {
    case Activation::silu:
      return activate_within_as<Activation::silu>(limit, gate, up, n);
    case Activation::relu:
      return activate_within_as<Activation::relu>(limit, gate, up, n);
    case Activation::gelu:
      return activate_within_as<Activation::gelu>(limit, gate, up, n);
    case Activation::gelu_tanh:
      return activate_within_as<Activation::gelu_tanh>(limit, gate, up, n);
    case Activation::relu2:
      return activate_within_as<Activation::relu2>(limit, gate, up, n);
    default:
      return activate_within_as<Activation::swiglu_oai>(limit, gate, up, n);
  }
}

// In four sums, so that additions need not wait for each other.
inline float sum_of_squares(const float* x, size_t n) {
  V sums[4] = {Simd::zero(), Simd::zero(), Simd::zero(), Simd::zero()};
  size_t i = 0;
  for (; i + 4 * Simd::lanes <= n; i += 4 * Simd::lanes)
    for (size_t j = 0; j < 4; ++j) {
      const V v = Simd::load(x + i + j * Simd::lanes);
      sums[j] = Simd::fma(v, v, sums[j]);
    }
  for (; i < n; i += Simd::lanes) {
    const V v = load_count(x, i, n - i < Simd::lanes ? n - i : Simd::lanes);
    sums[0] = Simd::fma(v, v, sums[0]);
  }
  return Simd::sum(Simd::add(Simd::add(sums[0], sums[1]), Simd::add(sums[2], sums[3])));
}

void gated_norm(const GatedNormArgs& a) {
  for (size_t g = 0; g < a.groups; ++g) {
    const float *x = a.x + g * a.width, *z = a.z == nullptr ? nullptr : a.z + g * a.width;
    const float* weight = a.weight == nullptr ? nullptr : a.weight + (a.own_weights ? g * a.width : 0);
    float* out = a.out + g * a.width;
    if (out != x) memcpy(out, x, a.width * sizeof(float));
    if (z != nullptr && a.gate_first) gate(a.gate, out, z, a.width);
    const V factor = Simd::set(1.0f / sqrtf(sum_of_squares(out, a.width) / static_cast<float>(a.width) + a.eps));
    for_registers(out, a.width, [&](V v, size_t i, size_t count) {
      v = Simd::mul(v, factor);
      if (weight != nullptr) v = Simd::mul(v, load_count(weight, i, count));
      return z == nullptr || a.gate_first ? v : gated(a.gate, v, load_count(z, i, count));
    });
  }
}

}  // namespace
}  // namespace helm
