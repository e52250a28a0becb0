// Scores and weighted sums of decode attention over blocks of plain rows, for the instruction set whose Simd was
// included before. Up to four query heads share each widened register.
#pragma once
#include "kernels/attention/attention_reading_impl.h"

namespace helm {
namespace {

// A block of up to kDecodeRows positions, `stride` bytes apart.
struct Rows {
  Format format;
  const char* data;
  size_t stride, width, count = kDecodeRows;
};

// What kRegisters registers of values take in a cache.
template <Format F, int kRegisters>
constexpr size_t asked_of() {
  return kRegisters * Simd::lanes * size_of(F);
}

// scores[g * kDecodeTile + r] of R rows from `first` on and G queries, R * G = lanes. Where a block is not full (kFull
// unset), its last row stands for those that are missing.
template <Format F, int R, int G, bool kFull>
void scores_tile(const Rows& rows, size_t first, const float* q, Lines& ahead, float* scores) {
  const size_t width = rows.width, stride = rows.stride;
  const char* data = rows.data + first * stride;
  size_t at[R];
#pragma GCC unroll 16
  for (size_t r = 0; r < R; ++r) at[r] = (kFull ? r : smaller(r, rows.count - 1 - first)) * stride;
  V acc[R * G];
#pragma GCC unroll 16
  for (V& sum : acc) sum = Simd::zero();
  for (size_t d = 0; d < width; d += Simd::lanes) {
    ahead.ask<asked_of<F, R>()>();
    V query[G];
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) query[g] = Simd::load(q + g * width + d);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const V row = load_as<F>(data + at[r], d);
#pragma GCC unroll 16
      for (int g = 0; g < G; ++g) acc[g * R + r] = Simd::fma(row, query[g], acc[g * R + r]);
    }
  }
  float sums[R * G];
  Simd::store(sums, Simd::sums(acc));
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g) memcpy(scores + g * kDecodeTile + first, sums + g * R, R * sizeof(float));
}

template <Format F, int G>
void scores_block(const Rows& rows, const float* q, Lines ahead, float* scores) {
  constexpr int R = Simd::lanes / G;
  size_t r = 0;
  for (; r + R <= rows.count; r += R) scores_tile<F, R, G, true>(rows, r, q, ahead, scores);
  if (r < rows.count) scores_tile<F, R, G, false>(rows, r, q, ahead, scores);
}

// Scores of a block against all queries, four, two or one at a time; the first ones ask for what comes next.
template <Format F>
void scores_of(const Rows& rows, const float* q, size_t group, Lines ahead, float* scores) {
  size_t g = 0;
  const size_t width = rows.width;
  const auto asked = [&] { return g == 0 ? ahead : Lines{rows.data}; };
  for (; g + 4 <= group; g += 4) scores_block<F, 4>(rows, q + g * width, asked(), scores + g * kDecodeTile);
  for (; g + 2 <= group; g += 2) scores_block<F, 2>(rows, q + g * width, asked(), scores + g * kDecodeTile);
  for (; g < group; ++g) scores_block<F, 1>(rows, q + g * width, asked(), scores + g * kDecodeTile);
}

// out[g][d...] += sum over the block's rows of p[g][r] * rows[r][d...]: N registers of G heads.
template <Format F, int N, int G>
void weighted_columns(const Rows& rows, size_t d, const float* p, Lines& ahead, float* out) {
  const size_t width = rows.width, stride = rows.stride;
  const char* row = rows.data;
  V acc[G][N];
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) acc[g][i] = Simd::load(out + g * width + d + i * Simd::lanes);
  for (size_t r = 0; r < rows.count; ++r, row += stride) {
    ahead.ask<asked_of<F, N>()>();
    V factor[G];
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) factor[g] = Simd::set(p[g * kDecodeTile + r]);
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      const V value = load_as<F>(row, d + i * Simd::lanes);
#pragma GCC unroll 16
      for (int g = 0; g < G; ++g) acc[g][i] = Simd::fma(factor[g], value, acc[g][i]);
    }
  }
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) Simd::store(out + g * width + d + i * Simd::lanes, acc[g][i]);
}

template <Format F, int G>
void weighted_block(const Rows& rows, const float* p, Lines ahead, float* out) {
  constexpr int N = kSums / G < 8 ? kSums / G : 8;
  size_t d = 0;
  for (; d + N * Simd::lanes <= rows.width; d += N * Simd::lanes) weighted_columns<F, N, G>(rows, d, p, ahead, out);
  for (; d < rows.width; d += Simd::lanes) weighted_columns<F, 1, G>(rows, d, p, ahead, out);
}

template <Format F>
void weighted_of(const Rows& rows, const float* p, size_t group, Lines ahead, float* out) {
  size_t g = 0;
  const size_t width = rows.width;
  const auto asked = [&] { return g == 0 ? ahead : Lines{rows.data}; };
  for (; g + 4 <= group; g += 4) weighted_block<F, 4>(rows, p + g * kDecodeTile, asked(), out + g * width);
  for (; g + 2 <= group; g += 2) weighted_block<F, 2>(rows, p + g * kDecodeTile, asked(), out + g * width);
  for (; g < group; ++g) weighted_block<F, 1>(rows, p + g * kDecodeTile, asked(), out + g * width);
}

}  // namespace
}  // namespace helm
