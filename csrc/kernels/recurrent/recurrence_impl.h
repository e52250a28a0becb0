// Linear recurrences, for the instruction set whose Simd was included before.
//
// One by one, some columns of the state stay in L1 while tokens pass. A chunk (Yang et al., Gated Delta Networks, 2024,
// section 3.3) has products of matrices instead: with D[i][j] = exp of the decays after j up to i, u = rate (v - (k
// exp(decays so far)) S) is corrected by every earlier u of the chunk, a unit lower triangular system of rate_i k_i .
// k_j D[i][j]; out = (q exp(..)) S + (q k^T D) u and S = exp(all decays) S + (k D[last])^T u. Decays are summed up from
// where they begin, never subtracted: a single large one would cost the digits of all that follow. Where decays are per
// dimension, these pairs are no products of matrices; one by one took 0.6 of the time (Zen 3, 64 tokens).
#pragma once
#include "kernels/recurrent/chunk_impl.h"
#include "kernels/recurrent/steps_impl.h"

namespace helm {
namespace {

// One token's q or k: divided by its length where that is wanted, and times `scale`.
inline void prepare_row(const RecurrenceArgs& a, const float* from, float scale, float* to) {
  memcpy(to, from, a.key_dim * sizeof(float));
  const float length = a.normalised ? 1.0f / sqrtf(sum_of_squares(to, a.key_dim) + 1e-6f) : 1.0f;
  const V factor = Simd::set(length * scale);
  for_registers(to, a.key_dim, [&](V v, size_t, size_t) { return Simd::mul(v, factor); });
}

// Tokens [from, from + count) of a run.
inline RecurrenceArgs tokens_of(RecurrenceArgs a, size_t from, size_t count) {
  a.q += from * a.key_stride, a.k += from * a.key_stride, a.v += from * a.value_stride;
  a.decay += from * a.decay_stride, a.rate += from * a.rate_stride, a.out += from * a.out_stride;
  a.tokens = count;
  return a;
}

void recur(const RecurrenceArgs& run) {
  for (size_t from = 0; from < run.tokens; from += kRecurrenceChunk) {
    const size_t rest = run.tokens - from;
    const RecurrenceArgs a = tokens_of(run, from, rest < kRecurrenceChunk ? rest : kRecurrenceChunk);
    const Prepared rows(a);
    for (size_t t = 0; t < a.tokens; ++t) {
      prepare_row(a, a.q + t * a.key_stride, a.query_scale, rows.q + t * rows.width);
      prepare_row(a, a.k + t * a.key_stride, 1.0f, rows.k + t * rows.width);
    }
    const bool few = a.per_dimension || a.tokens <= kRecurrenceOneByOne;
    few ? pass_one_by_one(a, rows) : pass_chunk(a, rows);
  }
}

}  // namespace
}  // namespace helm
