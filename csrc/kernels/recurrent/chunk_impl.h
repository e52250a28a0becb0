// A chunk of tokens of a linear recurrence, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/recurrent/chunk_decays_impl.h"

namespace helm {
namespace {

inline size_t least(size_t a, size_t b) { return a < b ? a : b; }

// u = rate (v - scaled S), where `scaled` has minus k times decays.
inline void first_updates(const RecurrenceArgs& a, const Prepared& rows, size_t h, const Factor& state) {
  const size_t columns = a.last - a.first;
  for (size_t t = 0; t < a.tokens; ++t)
    memcpy(rows.updates + t * rows.update_width, a.v + t * a.value_stride + h * a.value_dim + a.first,
           columns * sizeof(float));
  if (a.corrects)
    small_product({rows.scaled, rows.width, 1}, state, a.tokens, columns, a.key_dim, {rows.updates, rows.update_width},
                  true);
  for (size_t t = 0; t < a.tokens; ++t) {
    const V rate = Simd::set(a.rate[t * a.rate_stride + h]);
    for_registers(rows.updates + t * rows.update_width, columns,
                  [&](V v, size_t, size_t) { return Simd::mul(v, rate); });
  }
}

// Every update plus those before times `system`: blocks of rows by products, then row by row.
inline void solve_updates(const RecurrenceArgs& a, const Prepared& rows) {
  const size_t columns = a.last - a.first;
  const Factor updates{rows.updates, rows.update_width, 1};
  for (size_t first = 0; first < a.tokens; first += kPairBlock) {
    const size_t last = least(a.tokens, first + kPairBlock);
    small_product({rows.system + first * kRecurrenceChunk, kRecurrenceChunk, 1}, updates, last - first, columns, first,
                  {rows.updates + first * rows.update_width, rows.update_width}, true);
    for (size_t t = first + 1; t < last; ++t)
      small_product({rows.system + t * kRecurrenceChunk + first, kRecurrenceChunk, 1},
                    {rows.updates + first * rows.update_width, rows.update_width, 1}, 1, columns, t - first,
                    {rows.updates + t * rows.update_width, rows.update_width}, true);
  }
}

// out = scaled S + weights u + skip v, where `scaled` has q times decays.
inline void chunk_outputs(const RecurrenceArgs& a, const Prepared& rows, size_t h, const Factor& state) {
  const size_t columns = a.last - a.first, at = h * a.value_dim + a.first;
  small_product({rows.scaled, rows.width, 1}, state, a.tokens, columns, a.key_dim, {a.out + at, a.out_stride}, false);
  for (size_t first = 0; first < a.tokens; first += kPairBlock) {
    const size_t last = least(a.tokens, first + kPairBlock);
    small_product({rows.weights + first * kRecurrenceChunk, kRecurrenceChunk, 1}, {rows.updates, rows.update_width, 1},
                  last - first, columns, last, {a.out + first * a.out_stride + at, a.out_stride}, true);
  }
  for (size_t t = 0; a.skip != nullptr && t < a.tokens; ++t)
    add_weighted(a.out + t * a.out_stride + at, a.v + t * a.value_stride + at, a.skip[h], columns);
}

// S = exp(decays) S + scaled^T u, where `scaled` has k times the decays after it.
inline void next_state(const RecurrenceArgs& a, const Prepared& rows, float decays, float* state) {
  const size_t columns = a.last - a.first;
  const V kept = exp_or_nan(Simd::set(decays));
  for (size_t i = 0; i < a.key_dim; ++i)
    for_registers(state + i * a.value_dim, columns, [&](V v, size_t, size_t) { return Simd::mul(v, kept); });
  small_product({rows.scaled, 1, rows.width}, {rows.updates, rows.update_width, 1}, a.key_dim, columns, a.tokens,
                {state, a.value_dim}, true);
}

inline void chunk_of_head(const RecurrenceArgs& a, const Prepared& rows, size_t h) {
  float* state = a.state + h * a.key_dim * a.value_dim + a.first;
  const Factor before{state, a.value_dim, 1};
  const HeadDecays decays{a, rows, h};
  decays.multiply_pairs();
  if (a.corrects) decays.scale_from_start(rows.k, -1.0f);
  first_updates(a, rows, h, before);
  if (a.corrects) solve_updates(a, rows);
  decays.scale_from_start(rows.q, 1.0f);
  chunk_outputs(a, rows, h, before);
  next_state(a, rows, decays.scale_to_end(rows.k), state);
}

// Products of keys and queries are those of all heads that share them.
void pass_chunk(const RecurrenceArgs& a, const Prepared& rows) {
  turn(rows.k, rows.width, a.tokens, a.key_dim, rows.turned, kRecurrenceChunk);
  const Factor turned{rows.turned, kRecurrenceChunk, 1};
  const auto multiply_all = [&](const float* left, float* pairs) {
    small_product({left, rows.width, 1}, turned, a.tokens, a.tokens, a.key_dim, {pairs, kRecurrenceChunk}, false);
  };
  if (a.corrects) multiply_all(rows.k, rows.keys);
  multiply_all(rows.q, rows.queries);
  for (size_t h = 0; h < a.heads; ++h) chunk_of_head(a, rows, h * a.head_step);
}

}  // namespace
}  // namespace helm
