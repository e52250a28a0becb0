// Divided attention: scores over transposed keys, softmax, and the weighted sum of values, for the instruction set
// whose Simd was included before.
//
// Decode is bound by reading K and V. Scores take kScoreRows rows of K at a time, each ascending over a tile of
// positions, into sums that stay in L1; the next rows are prefetched meanwhile. The weighted sum reads V in ascending
// order. Up to four query heads share each widened register. Prompts use the blocked products of linear layers.
#pragma once
#include "kernels/attention/attention_impl.h"

namespace helm {
namespace {

constexpr size_t kScoreTile = 512;    // positions whose sums stay in L1 with a group of eight (16 KiB)
constexpr size_t kScoreRows = 8;      // rows of K per pass over the sums
constexpr size_t kWeightedRows = 32;  // positions of V per pass over the output: 8 KiB with head_dim 128 in f16

// Element `index` and those after it, `count` in all, then zeros: nothing beyond them is read.
template <Format F>
V load_first(const void* data, size_t index, size_t count) {
  char bytes[Simd::lanes * size_of(F)] = {};
  memcpy(bytes, static_cast<const char*>(data) + index * size_of(F), count * size_of(F));
  return load_as<F>(bytes, 0);
}

// The sums of G heads over N registers of positions from `p`, advanced by rows [d, d + depth) of K. `valid` < lanes
// (N = 1 only) at the end: what is beyond may not have been written, or be written just now.
template <Format F, int N, int G>
void scores_columns(const ScoresArgs& a, size_t g, size_t d, size_t depth, size_t p, size_t valid) {
  const float* q = a.q + g * a.head_dim + d;
  float* sums = a.scores + g * a.stride + p;
  V acc[G][N];
#pragma GCC unroll 16
  for (int h = 0; h < G; ++h)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) acc[h][i] = d == 0 ? Simd::zero() : Simd::load(sums + h * a.stride + i * Simd::lanes);
  for (size_t j = 0; j < depth; ++j) {
    const size_t at = (d + j) * a.capacity + p;
    V row[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      if (g == 0 && (N == 1 || i * Simd::lanes * size_of(F) % kLine == 0))
        __builtin_prefetch(static_cast<const char*>(a.keys) +
                           (at + kScoreRows * a.capacity + i * Simd::lanes) * size_of(F));
      row[i] =
          N > 1 || valid >= Simd::lanes ? load_as<F>(a.keys, at + i * Simd::lanes) : load_first<F>(a.keys, at, valid);
    }
#pragma GCC unroll 16
    for (int h = 0; h < G; ++h) {
      const V factor = Simd::set(q[h * a.head_dim + j]);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) acc[h][i] = Simd::fma(factor, row[i], acc[h][i]);
    }
  }
#pragma GCC unroll 16
  for (int h = 0; h < G; ++h)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) Simd::store(sums + h * a.stride + i * Simd::lanes, acc[h][i]);
}

template <Format F, int G>
void scores_rows(const ScoresArgs& a, size_t g, size_t d, size_t begin, size_t end) {
  constexpr int N = Simd::lanes == 16 ? 4 : 8 / G < 4 ? 8 / G : 4;  // sixteen sums where there are 32 registers
  const size_t depth = smaller(kScoreRows, a.head_dim - d);
  size_t p = begin;
  for (; p + N * Simd::lanes <= end; p += N * Simd::lanes) scores_columns<F, N, G>(a, g, d, depth, p, Simd::lanes);
  for (; p < end; p += Simd::lanes) scores_columns<F, 1, G>(a, g, d, depth, p, end - p);
}

template <Format F>
void scores_as(const ScoresArgs& a) {
  for (size_t begin = a.begin; begin < a.end; begin += kScoreTile) {
    const size_t end = smaller(a.end, begin + kScoreTile);
    for (size_t d = 0; d < a.head_dim; d += kScoreRows) {
      size_t g = 0;
      for (; g + 4 <= a.group; g += 4) scores_rows<F, 4>(a, g, d, begin, end);
      for (; g + 2 <= a.group; g += 2) scores_rows<F, 2>(a, g, d, begin, end);
      for (; g < a.group; ++g) scores_rows<F, 1>(a, g, d, begin, end);
    }
  }
}

void divided_scores(const ScoresArgs& a) {
  if (a.format == Format::f32) scores_as<Format::f32>(a);
  if (a.format == Format::f16) scores_as<Format::f16>(a);
  if (a.format == Format::bf16) scores_as<Format::bf16>(a);
}

void softmax(float* x, size_t n, float factor) {
  scale(x, factor, n);
  const float sum = exponentials(x, n, largest_of(x, n, kLowest));
  scale(x, 1.0f / sum, n);
}

// Columns [d, d + N registers) of G heads, advanced by positions [begin, end).
template <Format F, int N, int G>
void divided_columns(const WeightedArgs& a, size_t g, size_t d, size_t begin, size_t end) {
  const float* weights = a.weights + g * a.stride;
  float* out = a.out + g * a.head_dim + d;
  V acc[G][N];
#pragma GCC unroll 16
  for (int h = 0; h < G; ++h)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i)
      acc[h][i] = begin == 0 ? Simd::zero() : Simd::load(out + h * a.head_dim + i * Simd::lanes);
  for (size_t p = begin; p < end; ++p) {
    V factor[G];
#pragma GCC unroll 16
    for (int h = 0; h < G; ++h) factor[h] = Simd::set(weights[h * a.stride + p]);
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      const size_t at = p * a.head_dim + d + i * Simd::lanes;
      if (g == 0) prefetch<F>(a.values, at);
      const V value = load_as<F>(a.values, at);
#pragma GCC unroll 16
      for (int h = 0; h < G; ++h) acc[h][i] = Simd::fma(factor[h], value, acc[h][i]);
    }
  }
#pragma GCC unroll 16
  for (int h = 0; h < G; ++h)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) Simd::store(out + h * a.head_dim + i * Simd::lanes, acc[h][i]);
}

// The columns that do not fill a register.
template <Format F>
void divided_rest(const WeightedArgs& a, size_t g, size_t d, size_t begin, size_t end) {
  const float* weights = a.weights + g * a.stride;
  float* out = a.out + g * a.head_dim + d;
  const size_t count = a.last - d;
  V acc = begin == 0 ? Simd::zero() : load_some(out, count, 0);
  for (size_t p = begin; p < end; ++p)
    acc = Simd::fma(Simd::set(weights[p]), load_first<F>(a.values, p * a.head_dim + d, count), acc);
  store_some(out, count, acc);
}

template <Format F, int G>
void weighted_rows(const WeightedArgs& a, size_t g, size_t begin, size_t end) {
  constexpr int N = (Simd::lanes == 16 ? 16 : 8) / G < 8 ? (Simd::lanes == 16 ? 16 : 8) / G : 8;
  size_t d = a.first;
  for (; d + N * Simd::lanes <= a.last; d += N * Simd::lanes) divided_columns<F, N, G>(a, g, d, begin, end);
  for (; d + Simd::lanes <= a.last; d += Simd::lanes) divided_columns<F, 1, G>(a, g, d, begin, end);
  if (d < a.last)
    for (int h = 0; h < G; ++h) divided_rest<F>(a, g + h, d, begin, end);
}

template <Format F>
void weighted_as(const WeightedArgs& a) {
  for (size_t begin = 0; begin < a.end; begin += kWeightedRows) {
    const size_t end = smaller(a.end, begin + kWeightedRows);
    size_t g = 0;
    for (; g + 4 <= a.group; g += 4) weighted_rows<F, 4>(a, g, begin, end);
    for (; g + 2 <= a.group; g += 2) weighted_rows<F, 2>(a, g, begin, end);
    for (; g < a.group; ++g) weighted_rows<F, 1>(a, g, begin, end);
  }
}

void divided_weighted(const WeightedArgs& a) {
  if (a.format == Format::f32) weighted_as<Format::f32>(a);
  if (a.format == Format::f16) weighted_as<Format::f16>(a);
  if (a.format == Format::bf16) weighted_as<Format::bf16>(a);
}

// Positions [first, first + count) of transposed keys as f32 panels [.. / 16][head_dim][16], zero beyond count.
inline void load_keys(const PromptArgs& a, size_t first, size_t count, float* panels) {
  for (size_t p = 0; p < count; p += kPanel) {
    const size_t n = smaller(kPanel, count - p);
    float* panel = panels + p * a.head_dim;
    if (n < kPanel) memset(panel, 0, a.head_dim * kPanel * sizeof(float));
    for (size_t d = 0; d < a.head_dim; ++d)
      widen(a.format, offset(a.format, a.cache, d * a.capacity + first + p), n, panel + d * kPanel);
  }
}

// Product of `panels` panels with one block of rows: y[count][panels * 16].
inline void panels_times(const float* weights, size_t panels, size_t panel_stride, size_t depth, const float* x,
                         size_t count, float* y, size_t stride, bool accumulate) {
  for (size_t p = 0; p < panels; p += Simd::product_panels) {
    const size_t n = smaller(Simd::product_panels, panels - p);
    product_tile(weights + p * panel_stride, n, panel_stride, depth, x, count, y + p * kPanel, stride, n * kPanel,
                 accumulate);
  }
}

void scores_prompt(const PromptArgs& a) {
  const size_t tokens = a.last - a.first, end = a.past + a.last;
  const Blocks blocks = blocks_of(tokens, Simd::product_block);
  float* keys = a.scratch;
  float* queries = keys + a.head_dim * kPrefillTile;  // [group] blocks [head_dim][width]
  for (size_t g = 0; g < a.group; ++g)
    pack_x(a.q + a.first * a.row + g * a.head_dim, a.row, tokens, a.head_dim, Simd::product_block, 0, a.head_dim,
           queries + g * tokens * a.head_dim);
  for (size_t first = 0; first < end; first += kPrefillTile) {
    const size_t count = smaller(kPrefillTile, end - first);
    load_keys(a, first, count, keys);
    for (size_t b = 0; b < blocks.count; ++b) {
      const Block block = block_at(blocks, b);
      if (a.past + a.first + block.end <= first) continue;  // none of its tokens may look here
      for (size_t g = 0; g < a.group; ++g)
        panels_times(keys, round_up(count, kPanel) / kPanel, a.head_dim * kPanel, a.head_dim,
                     queries + (g * tokens + block.begin) * a.head_dim, block.end - block.begin,
                     a.scores + (a.first + block.begin) * a.token_stride + g * a.stride + first, a.token_stride, false);
    }
  }
}

// Positions [first, first + count) of values as f32 panels [width / 16][kPrefillTile][16], zero beyond head_dim.
inline void load_values(const PromptArgs& a, size_t first, size_t count, float* panels) {
  for (size_t d = 0; d < a.head_dim; d += kPanel) {
    const size_t n = smaller(kPanel, a.head_dim - d);
    float* panel = panels + d * kPrefillTile;
    if (n < kPanel) memset(panel, 0, kPrefillTile * kPanel * sizeof(float));
    for (size_t j = 0; j < count; ++j)
      widen(a.format, offset(a.format, a.cache, (first + j) * a.head_dim + d), n, panel + j * kPanel);
  }
}

void weighted_prompt(const PromptArgs& a) {
  const size_t tokens = a.last - a.first, end = a.past + a.last, width = round_up(a.head_dim, kPanel);
  const Blocks blocks = blocks_of(tokens, Simd::product_block);
  float* values = a.scratch;
  float* weights = values + width * kPrefillTile;  // [kPrefillTile][block]
  for (size_t first = 0; first < end; first += kPrefillTile) {
    const size_t count = smaller(kPrefillTile, end - first);
    load_values(a, first, count, values);
    for (size_t b = 0; b < blocks.count; ++b) {
      const Block block = block_at(blocks, b);
      const size_t n = block.end - block.begin, token = a.first + block.begin;
      if (a.past + token + n <= first) continue;
      for (size_t g = 0; g < a.group; ++g) {
        pack_x(a.scores + token * a.token_stride + g * a.stride + first, a.token_stride, n, count, n, 0, count,
               weights);
        float* out = a.out + token * a.row + g * a.head_dim;
        for (size_t d = 0; d < width; d += Simd::product_panels * kPanel)
          product_tile(values + d * kPrefillTile, smaller(Simd::product_panels, (width - d) / kPanel),
                       kPrefillTile * kPanel, count, weights, n, out + d, a.row, a.head_dim - d, first > 0);
      }
    }
  }
}

}  // namespace
}  // namespace helm
