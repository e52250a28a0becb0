// What decays do to the rows and the pairs of tokens of a chunk, for the instruction set whose Simd was included
// before.
#pragma once
#include "kernels/elementwise/gates_impl.h"
#include "kernels/recurrent/prepared_impl.h"

namespace helm {
namespace {

constexpr size_t kPairBlock = 16;  // rows of pairs of tokens that are multiplied together: triangles in steps

// Of head h of a chunk.
struct HeadDecays {
  const RecurrenceArgs& a;
  const Prepared& rows;
  size_t h;

  float of(size_t t) const { return a.decay[t * a.decay_stride + h]; }

  // Row t of rows.scaled = that of `from`, times factor exp(sum).
  void scale_row(const float* from, size_t t, float factor, float sum) const {
    const V times = Simd::mul(Simd::set(factor), exp_or_nan(Simd::set(sum)));
    for_registers(rows.scaled + t * rows.width, a.key_dim, [&](V, size_t i, size_t count) {
      return Simd::mul(load_count(from + t * rows.width, i, count), times);
    });
  }

  // rows.scaled = `from` times the decays from the chunk's start on, times `factor`.
  void scale_from_start(const float* from, float factor) const {
    float sum = 0;
    for (size_t t = 0; t < a.tokens; ++t) scale_row(from, t, factor, sum += of(t));
  }

  // rows.scaled = `from` times the decays after each token; returns the sum of all.
  float scale_to_end(const float* from) const {
    float sum = 0;
    for (size_t t = a.tokens; t-- > 0; sum += of(t)) scale_row(from, t, 1.0f, sum);
    return sum;
  }

  // rows.weights = queries times decays for pairs with an earlier token or itself, zero up to the end of a block of
  // rows, and rows.system = minus rate times keys times decays for pairs with an earlier one. Decays after s up to t
  // are those up to the token before, and that of t.
  void multiply_pairs() const {
    for (size_t t = 0; t < a.tokens; ++t) {
      const V decay = Simd::set(of(t));
      for_registers(rows.decays, t, [&](V sum, size_t, size_t) { return Simd::add(sum, decay); });
      rows.decays[t] = 0;
      const size_t row = t * kRecurrenceChunk;
      memset(rows.weights + row + t, 0, (round_up(t + 1, kPairBlock) - t) * sizeof(float));
      multiply_row(rows.queries + row, t + 1, 1.0f, rows.weights + row);
      if (a.corrects) multiply_row(rows.keys + row, t, -a.rate[t * a.rate_stride + h], rows.system + row);
    }
  }

  void multiply_row(const float* products, size_t n, float factor, float* to) const {
    for_registers(to, n, [&](V, size_t i, size_t count) {
      const V decayed = Simd::mul(load_count(products, i, count), exp_or_nan(load_count(rows.decays, i, count)));
      return Simd::mul(Simd::set(factor), decayed);
    });
  }
};

}  // namespace
}  // namespace helm
