// A linear recurrence one token after the other, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/elementwise/gates_impl.h"
#include "kernels/recurrent/prepared_impl.h"

namespace helm {
namespace {

constexpr int kStateRegisters = 4;  // columns of a state that pass together: two sums of each hide latency

constexpr size_t kTokensTogether = 5;  // that pass columns of a state which were brought together first
static_assert(kStateRegisters * Simd::lanes <= kRecurrenceChunk,
              "columns that pass together fit where keys are turned");

// What a token has for every row of a state, [key_dim] each.
struct Step {
  const float *q, *k, *kept;  // kept: by what the row is multiplied first
  const float* v;             // W registers of columns
  float rate, skip;
  float* out;
};

// S^T (kept k) of W registers of columns, in two sums of alternate rows.
template <int W>
HELM_INLINE void read_state(const Step& s, const float* state, size_t stride, size_t rows, size_t count, V* to) {
  V even[W], odd[W];
#pragma GCC unroll 4
  for (int w = 0; w < W; ++w) even[w] = odd[w] = Simd::zero();
  const auto add_row = [&](size_t i, V* sums) HELM_LAMBDA {
    const V factor = Simd::set(s.kept[i] * s.k[i]);
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w)
      sums[w] = Simd::fma(load_count(state + i * stride, w * Simd::lanes, count), factor, sums[w]);
  };
  size_t i = 0;
  for (; i + 2 <= rows; i += 2) add_row(i, even), add_row(i + 1, odd);
  if (i < rows) add_row(i, even);
#pragma GCC unroll 4
  for (int w = 0; w < W; ++w) to[w] = Simd::add(even[w], odd[w]);
}

// W registers of columns of a state, `count` numbers in each, pass one token.
template <int W>
HELM_INLINE void take_step(const Step& s, bool corrects, float* state, size_t stride, size_t rows, size_t count) {
  V seen[W], update[W], out[W];
#pragma GCC unroll 4
  for (int w = 0; w < W; ++w) seen[w] = Simd::zero();
  if (corrects) read_state<W>(s, state, stride, rows, count, seen);
#pragma GCC unroll 4
  for (int w = 0; w < W; ++w) {
    const V v = load_count(s.v, w * Simd::lanes, count);
    update[w] = Simd::mul(Simd::set(s.rate), Simd::sub(v, seen[w]));
    out[w] = Simd::mul(Simd::set(s.skip), v);
  }
  for (size_t i = 0; i < rows; ++i) {
    const V kept = Simd::set(s.kept[i]), k = Simd::set(s.k[i]), q = Simd::set(s.q[i]);
#pragma GCC unroll 4
    for (int w = 0; w < W; ++w) {
      float* at = state + i * stride + w * Simd::lanes;
      const V next = Simd::fma(k, update[w], Simd::mul(kept, load_count(at, 0, count)));
      count == Simd::lanes ? Simd::store(at, next) : store_some(at, count, next);
      out[w] = Simd::fma(q, next, out[w]);
    }
  }
#pragma GCC unroll 4
  for (int w = 0; w < W; ++w) {
    float* to = s.out + w * Simd::lanes;
    count == Simd::lanes ? Simd::store(to, out[w]) : store_some(to, count, out[w]);
  }
}

// to[rows][to_stride] = from[rows][stride], `columns` of each.
inline void copy_columns(const float* from, size_t stride, size_t rows, size_t columns, float* to, size_t to_stride) {
  for (size_t i = 0; i < rows; ++i) memcpy(to + i * to_stride, from + i * stride, columns * sizeof(float));
}

// Columns from `column` on of head h. For some tokens they are brought together: rows of a state are often a power
// of two apart, so that columns of it share few sets of L1.
template <int W>
HELM_INLINE void pass_columns(const RecurrenceArgs& a, const Prepared& rows, size_t h, size_t column, size_t count) {
  const size_t columns = (W - 1) * Simd::lanes + count, at = h * a.value_dim + column;
  float *stored = a.state + h * a.key_dim * a.value_dim + column, *state = stored;
  size_t stride = a.value_dim;
  const bool together = a.tokens >= kTokensTogether;
  if (together) {
    state = rows.turned, stride = W * Simd::lanes;
    copy_columns(stored, a.value_dim, a.key_dim, columns, state, stride);
  }
  for (size_t t = 0; t < a.tokens; ++t) {
    const Step step{rows.q + t * rows.width,       rows.k + t * rows.width,       rows.scaled + t * rows.width,
                    a.v + t * a.value_stride + at, a.rate[t * a.rate_stride + h], a.skip == nullptr ? 0.0f : a.skip[h],
                    a.out + t * a.out_stride + at};
    take_step<W>(step, a.corrects, state, stride, a.key_dim, count);
  }
  if (together) copy_columns(state, stride, a.key_dim, columns, stored, a.value_dim);
}

// By what rows of head h's state are multiplied, of every token, to rows.scaled.
inline void keep_factors(const RecurrenceArgs& a, const Prepared& rows, size_t h) {
  for (size_t t = 0; t < a.tokens; ++t) {
    const float* decay = a.decay + t * a.decay_stride + (a.per_dimension ? h * a.key_dim : h);
    for_registers(rows.scaled + t * rows.width, a.key_dim, [&](V, size_t i, size_t count) {
      return exp_or_nan(a.per_dimension ? load_count(decay, i, count) : Simd::set(*decay));
    });
  }
}

void pass_one_by_one(const RecurrenceArgs& a, const Prepared& rows) {
  for (size_t head = 0; head < a.heads; ++head) {
    const size_t h = head * a.head_step;
    keep_factors(a, rows, h);
    size_t column = a.first;
    for (; column + kStateRegisters * Simd::lanes <= a.last; column += kStateRegisters * Simd::lanes)
      pass_columns<kStateRegisters>(a, rows, h, column, Simd::lanes);
    for (; column + Simd::lanes <= a.last; column += Simd::lanes) pass_columns<1>(a, rows, h, column, Simd::lanes);
    if (column < a.last) pass_columns<1>(a, rows, h, column, a.last - column);
  }
}

}  // namespace
}  // namespace helm
