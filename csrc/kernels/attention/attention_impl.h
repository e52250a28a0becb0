// What attention over spans of caches shares, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/cache/kv_row_impl.h"

namespace helm {
namespace {

constexpr float kLowest = -3.4028235e38f;  // no score is below it; -inf would make NaN in differences

inline float largest_of(const float* x, size_t n, float start) {
  V best = Simd::set(start);
  size_t i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) best = Simd::max(best, Simd::load(x + i));
  if (i < n) best = Simd::max(best, load_some(x + i, n - i, start));
  return Simd::largest(best);
}

// x[n] = exp(x[n] - max); returns their sum. n may be rounded up to whole registers: x has room.
inline float exponentials(float* x, size_t n, float max) {
  const V shift = Simd::set(max);
  V total = Simd::zero();
  size_t i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) {
    const V p = exp_of(Simd::sub(Simd::load(x + i), shift));
    Simd::store(x + i, p);
    total = Simd::add(total, p);
  }
  float rest = 0;
  if (i < n) {
    float values[Simd::lanes];
    Simd::store(values, exp_of(Simd::sub(load_some(x + i, n - i, max), shift)));
    for (size_t j = 0; i < n; ++i, ++j) rest += x[i] = values[j];
  }
  return rest + Simd::sum(total);
}

// exp(a - b) for a <= b, both possibly kLowest.
inline float ratio(float a, float b) { return a <= kLowest ? 0.0f : a == b ? 1.0f : expf(a - b); }

// x[n] = softcap * tanh(x / softcap); n may be rounded up to whole registers: x has room. Above 20 the weights of a
// tanh are those of 1.
inline void cap_scores(float* x, size_t n, float softcap) {
  const V cap = Simd::set(softcap), twice = Simd::set(2.0f), both = Simd::set(2.0f / softcap);
  for (size_t i = 0; i < n; i += Simd::lanes) {
    const V ratio = Simd::div(twice, Simd::add(exp_of(Simd::mul(Simd::load(x + i), both)), Simd::set(1.0f)));
    Simd::store(x + i, Simd::mul(cap, Simd::sub(Simd::set(1.0f), ratio)));
  }
}

// The rows of one KV head (of keys or of values) and sequence in a span, `stride` bytes apart, from position `at` of it
// on.
inline const char* rows_in(const KvSpan& span, const HeadCache& head, size_t sequence, size_t at, size_t stride) {
  return head.data + sequence * head.sequence + (span.first + at) * stride;
}

}  // namespace
}  // namespace helm
