// Pairs of bf16, as BF16 units multiply them: of neighbouring columns, for the instruction set whose Simd was included
// before.
#pragma once
#include "kernels/linear/codes_impl.h"

namespace helm {
namespace {

inline size_t pairs_of(size_t columns) { return (columns + 1) / 2; }

// Two columns of a panel as pairs.
inline void pair_two(const uint16_t* columns, int32_t* to) {
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) Simd::store_words(to + i * Simd::lanes, Simd::pairs_of_columns(columns, i));
}

// `depth` columns of a panel as pairs, `step` apart; an odd last one is paired with zeros.
inline void pair_columns(const uint16_t* columns, size_t depth, size_t step, int32_t* to) {
  for (size_t k = 0; k + 2 <= depth; k += 2, to += step) pair_two(columns + k * kPanel, to);
  if (depth % 2 == 0) return;
  alignas(64) uint16_t last[2 * kPanel] = {};
  memcpy(last, columns + (depth - 1) * kPanel, kPanel * sizeof(uint16_t));
  pair_two(last, to);
}

// A run of 32 columns of a panel as sixteen lines of pairs, `step` apart; beyond the last column they are zero.
// Quantised weights are rounded to bf16, to nearest even.
template <Format F>
HELM_INLINE void pair_run(const LinearArgs& a, size_t panel, size_t run, size_t step, int32_t* to) {
  if constexpr (quantised(F)) {
    each_pair_of_values<F>(reinterpret_cast<const uint8_t*>(panel_at<F>(a, panel, 0)), run,
                           [&](size_t p, int i, V even, V odd) HELM_LAMBDA {
                             Simd::store_words(to + p * step + i * Simd::lanes, Simd::pair(even, odd));
                           });
  } else {
    const size_t count = smaller(kRun, a.columns - run * kRun);
    const auto* columns = reinterpret_cast<const uint16_t*>(panel_at<F>(a, panel, run * kRun));
    if (count == kRun) {
#pragma GCC unroll 16
      for (size_t p = 0; p < kRun / 2; ++p) pair_two(columns + 2 * p * kPanel, to + p * step);
      return;
    }
    pair_columns(columns, count, step, to);
    for (size_t p = pairs_of(count); p < kRun / 2; ++p) memset(to + p * step, 0, kPanel * sizeof(int32_t));
  }
}

// Calls use(format) with the format of weights, bf16 or a quantised one, as a type.
template <class Use>
void with_paired_format(Format format, const Use& use) {
  if (format == Format::bf16) return use(CodeFormat<Format::bf16>());
  with_code_format(format, use);
}

// To bf16, to nearest even.
inline void round_strip(const float* x, size_t n, uint16_t* strip) {
  size_t i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) Simd::store_bf16(strip + i, Simd::load(x + i));
  for (; i < n; ++i) strip[i] = narrow_bf16(x[i]);
}

}  // namespace
}  // namespace helm
