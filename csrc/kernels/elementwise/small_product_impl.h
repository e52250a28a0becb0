// Products of small f32 matrices that are read from L1 or L2, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/elementwise/vector_math_impl.h"

namespace helm {
namespace {

// Element (row, column) of a factor is data[row * row_step + column * column_step].
struct Factor {
  const float* data;
  size_t row_step, column_step;
};

// `stride` floats from row to row.
struct Rows {
  float* data;
  size_t stride;
};

constexpr int kTileRows = 4;  // times two registers: eight sums hide the latency of four cycles on two ports

// Rows of c times W registers of columns; every sum is a chain of FMAs in ascending order of the depth.
template <int R, int W>
HELM_INLINE void product_tile_of(const Factor& a, const Factor& b, size_t depth, float* c, size_t stride,
                                 bool accumulate, size_t count) {
  V sums[R][W];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int w = 0; w < W; ++w)
      sums[r][w] = accumulate ? load_count(c + r * stride, w * Simd::lanes, count) : Simd::zero();
  for (size_t k = 0; k < depth; ++k) {
    V row[W];
#pragma GCC unroll 2
    for (int w = 0; w < W; ++w) row[w] = load_count(b.data + k * b.row_step, w * Simd::lanes, count);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const V factor = Simd::set(a.data[r * a.row_step + k * a.column_step]);
#pragma GCC unroll 2
      for (int w = 0; w < W; ++w) sums[r][w] = Simd::fma(factor, row[w], sums[r][w]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int w = 0; w < W; ++w) {
      float* target = c + r * stride + w * Simd::lanes;
      count == Simd::lanes ? Simd::store(target, sums[r][w]) : store_some(target, count, sums[r][w]);
    }
}

template <int R>
void product_rows(Factor a, const Factor& b, size_t columns, size_t depth, Rows c, bool accumulate) {
  size_t j = 0;
  const auto from = [&](size_t column) { return Factor{b.data + column, b.row_step, 1}; };
  for (; j + 2 * Simd::lanes <= columns; j += 2 * Simd::lanes)
    product_tile_of<R, 2>(a, from(j), depth, c.data + j, c.stride, accumulate, Simd::lanes);
  for (; j + Simd::lanes <= columns; j += Simd::lanes)
    product_tile_of<R, 1>(a, from(j), depth, c.data + j, c.stride, accumulate, Simd::lanes);
  if (j < columns) product_tile_of<R, 1>(a, from(j), depth, c.data + j, c.stride, accumulate, columns - j);
}

// c[rows][columns] = (or +=) a[rows][depth] b[depth][columns]; rows of b are contiguous.
inline void small_product(Factor a, const Factor& b, size_t rows, size_t columns, size_t depth, Rows c,
                          bool accumulate) {
  size_t i = 0;
  const auto left = [&] { return Factor{a.data + i * a.row_step, a.row_step, a.column_step}; };
  for (; i + kTileRows <= rows; i += kTileRows)
    product_rows<kTileRows>(left(), b, columns, depth, {c.data + i * c.stride, c.stride}, accumulate);
  for (; i < rows; ++i) product_rows<1>(left(), b, columns, depth, {c.data + i * c.stride, c.stride}, accumulate);
}

// to[columns][to_stride] = from[rows][from_stride], transposed.
inline void turn(const float* from, size_t from_stride, size_t rows, size_t columns, float* to, size_t to_stride) {
  for (size_t r = 0; r < rows; ++r)
    for (size_t c = 0; c < columns; ++c) to[c * to_stride + r] = from[r * from_stride + c];
}

}  // namespace
}  // namespace helm
