// Attention over a contiguous cache, for the instruction set whose Simd was included before.
//
// Decode is bound by reading K and V: positions are widened sixteen at a time in strictly ascending order and
// every query head of the group uses them from L1. Prefill is bound by arithmetic: tiles of K and V become f32
// panels, and scores and outputs are the blocked products of linear layers.
#pragma once
#include "elementwise_impl.h"

namespace helm {
namespace {

constexpr float kLowest = -1e30f;  // below every score; -inf would make NaN in differences

inline float largest_of(const float* x, size_t n, float start) {
  V best = Simd::set(start);
  size_t i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) best = Simd::max(best, Simd::load(x + i));
  return Simd::largest(Simd::max(best, load_some(x + i, n - i, start)));
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
inline float ratio(float a, float b) { return a <= kLowest ? 0.0f : expf(a - b); }

// kDecodeRows cached rows (those from `rows` on are zero) as f32 [kDecodeRows][width]; columns from head_dim on
// were zeroed once and stay so.
inline void widen_rows(Format format, const void* source, size_t first, size_t rows, size_t head_dim, size_t width,
                       float* target) {
  if (width == head_dim) {
    widen(format, offset(format, source, first * head_dim), rows * head_dim, target);
  } else {
    for (size_t r = 0; r < rows; ++r)
      widen(format, offset(format, source, (first + r) * head_dim), head_dim, target + r * width);
  }
  if (rows < kDecodeRows) memset(target + rows * width, 0, (kDecodeRows - rows) * width * sizeof(float));
}

// scores[g * kDecodeTile + r] for R rows and G queries, R * G = lanes.
template <int R, int G>
void scores_tile(const float* rows, const float* q, size_t width, float* scores) {
  V acc[R * G];
#pragma GCC unroll 16
  for (int i = 0; i < R * G; ++i) acc[i] = Simd::zero();
  for (size_t d = 0; d < width; d += Simd::lanes) {
    V query[G];
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) query[g] = Simd::load(q + g * width + d);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const V row = Simd::load(rows + r * width + d);
#pragma GCC unroll 16
      for (int g = 0; g < G; ++g) acc[g * R + r] = Simd::fma(row, query[g], acc[g * R + r]);
    }
  }
  float sums[R * G];
  Simd::store(sums, Simd::sums(acc));
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g) memcpy(scores + g * kDecodeTile, sums + g * R, R * sizeof(float));
}

template <int G>
void scores_rows(const float* rows, const float* q, size_t width, float* scores) {
  constexpr int R = Simd::lanes / G;
  for (size_t r = 0; r < kDecodeRows; r += R) scores_tile<R, G>(rows + r * width, q, width, scores + r);
}

// Scores of kDecodeRows rows against all queries, four, two or one at a time.
inline void scores_of(const float* rows, const float* q, size_t width, size_t group, float* scores) {
  size_t g = 0;
  for (; g + 4 <= group; g += 4) scores_rows<4>(rows, q + g * width, width, scores + g * kDecodeTile);
  for (; g + 2 <= group; g += 2) scores_rows<2>(rows, q + g * width, width, scores + g * kDecodeTile);
  for (; g < group; ++g) scores_rows<1>(rows, q + g * width, width, scores + g * kDecodeTile);
}

// out[width] += sum over kDecodeRows rows of p[r] * rows[r][width], N registers of it.
template <int N>
void weighted_columns(const float* rows, const float* p, size_t width, float* out) {
  V acc[N];
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) acc[i] = Simd::load(out + i * Simd::lanes);
  for (size_t r = 0; r < kDecodeRows; ++r) {
    const V factor = Simd::set(p[r]);
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) acc[i] = Simd::fma(factor, Simd::load(rows + r * width + i * Simd::lanes), acc[i]);
  }
#pragma GCC unroll 16
  for (int i = 0; i < N; ++i) Simd::store(out + i * Simd::lanes, acc[i]);
}

inline void weighted_rows(const float* rows, const float* p, size_t width, float* out) {
  size_t d = 0;
  for (; d + 8 * Simd::lanes <= width; d += 8 * Simd::lanes) weighted_columns<8>(rows + d, p, width, out + d);
  for (; d < width; d += Simd::lanes) weighted_columns<1>(rows + d, p, width, out + d);
}

struct DecodeScratch {
  float *rows, *q, *out, *scores;
};

inline DecodeScratch decode_layout(const DecodeArgs& a, size_t width) {
  float* q = a.scratch + kDecodeRows * width;
  float* out = q + a.group * width;
  return {a.scratch, q, out, out + a.group * width};
}

// One tile of positions: scores, a step of the running softmax, weighted values.
inline void decode_tile(const DecodeArgs& a, const DecodeScratch& s, size_t width, size_t first, size_t count) {
  for (size_t r = 0; r < count; r += kDecodeRows) {
    widen_rows(a.format, a.keys, first + r, smaller(kDecodeRows, count - r), a.head_dim, width, s.rows);
    scores_of(s.rows, s.q, width, a.group, s.scores + r);
  }
  for (size_t g = 0; g < a.group; ++g) {
    float* scores = s.scores + g * kDecodeTile;
    const float max = largest_of(scores, count, a.max[g]);
    const float keep = ratio(a.max[g], max);
    a.sum[g] = a.sum[g] * keep + exponentials(scores, count, max);
    a.max[g] = max;
    for (size_t r = count; r < round_up(count, kDecodeRows); ++r) scores[r] = 0;
    scale(s.out + g * width, keep, width);
  }
  for (size_t r = 0; r < count; r += kDecodeRows) {
    widen_rows(a.format, a.values, first + r, smaller(kDecodeRows, count - r), a.head_dim, width, s.rows);
    for (size_t g = 0; g < a.group; ++g)
      weighted_rows(s.rows, s.scores + g * kDecodeTile + r, width, s.out + g * width);
  }
}

void decode(const DecodeArgs& a) {
  const size_t width = round_up(a.head_dim, kPanel);
  const DecodeScratch s = decode_layout(a, width);
  const float factor = 1.0f / sqrtf(static_cast<float>(a.head_dim));
  memset(a.scratch, 0, width * (kDecodeRows + 2 * a.group) * sizeof(float));
  for (size_t g = 0; g < a.group; ++g) {
    for (size_t d = 0; d < a.head_dim; ++d) s.q[g * width + d] = a.q[g * a.head_dim + d] * factor;
    a.max[g] = kLowest;
    a.sum[g] = 0;
  }
  for (size_t first = a.begin; first < a.end; first += kDecodeTile)
    decode_tile(a, s, width, first, smaller(kDecodeTile, a.end - first));
  for (size_t g = 0; g < a.group; ++g)
    memcpy(a.out + g * a.head_dim, s.out + g * width, a.head_dim * sizeof(float));
}

struct PrefillScratch {
  float *keys;    // [kPrefillTile / 16][head_dim][16]
  float *values;  // [width / 16][kPrefillTile][16]
  float *row;     // [width]
  float *scores;  // [block][kPrefillTile]
  float *weights; // [kPrefillTile][block]
  float *q;       // blocks [head_dim][block]
  float *out;     // [rows][width]
  float *max, *sum;  // [rows]
};

inline PrefillScratch prefill_layout(const PrefillArgs& a, size_t width, size_t rows) {
  PrefillScratch s;
  s.keys = a.scratch;
  s.values = s.keys + width * kPrefillTile;
  s.row = s.values + width * kPrefillTile;
  s.scores = s.row + width;
  s.weights = s.scores + kMaxBlock * kPrefillTile;
  s.q = s.weights + kMaxBlock * kPrefillTile;
  s.out = s.q + round_up(rows * a.head_dim, kPanel);
  s.max = s.out + rows * width;
  s.sum = s.max + round_up(rows, kPanel);
  return s;
}

// Row `row` of the piece is token first + row / group, head row % group.
inline size_t token_of(const PrefillArgs& a, size_t row) { return a.first + row / a.group; }

inline size_t query_at(const PrefillArgs& a, size_t row) {
  return token_of(a, row) * a.stride + row % a.group * a.head_dim;
}

inline void pack_queries(const PrefillArgs& a, const PrefillScratch& s, size_t rows, size_t blocks) {
  const float factor = 1.0f / sqrtf(static_cast<float>(a.head_dim));
  for (size_t b = 0; b < blocks; ++b) {
    const Block block = block_at(rows, blocks, b);
    const size_t count = block.end - block.begin;
    float* target = s.q + block.begin * a.head_dim;
    for (size_t r = 0; r < count; ++r) {
      const float* q = a.q + query_at(a, block.begin + r);
      for (size_t d = 0; d < a.head_dim; ++d) target[d * count + r] = q[d] * factor;
    }
  }
}

// Positions [first, first + count) of K and V as f32 panels, zero beyond count.
inline void load_tile(const PrefillArgs& a, const PrefillScratch& s, size_t width, size_t first, size_t count) {
  if (count < kPrefillTile) {
    memset(s.keys, 0, width * kPrefillTile * sizeof(float));
    memset(s.values, 0, width * kPrefillTile * sizeof(float));
  }
  for (size_t j = 0; j < count; ++j) {
    widen(a.format, offset(a.format, a.keys, (first + j) * a.head_dim), a.head_dim, s.row);
    float* panel = s.keys + j / kPanel * a.head_dim * kPanel + j % kPanel;
    for (size_t d = 0; d < a.head_dim; ++d) panel[d * kPanel] = s.row[d];
    widen(a.format, offset(a.format, a.values, (first + j) * a.head_dim), a.head_dim, s.row);
    for (size_t d = 0; d < width; d += kPanel)
      memcpy(s.values + (d / kPanel * kPrefillTile + j) * kPanel, s.row + d, kPanel * sizeof(float));
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

// One row's step of the running softmax over the tile's first `visible` positions.
inline void softmax_row(const PrefillScratch& s, size_t row, float* scores, size_t visible, size_t width) {
  const float max = largest_of(scores, visible, s.max[row]);
  const float keep = ratio(s.max[row], max);
  s.sum[row] = s.sum[row] * keep + exponentials(scores, visible, max);
  s.max[row] = max;
  for (size_t j = visible; j < kPrefillTile; ++j) scores[j] = 0;
  if (keep != 1.0f) scale(s.out + row * width, keep, width);
}

inline void prefill_block(const PrefillArgs& a, const PrefillScratch& s, size_t width, Block block, size_t first,
                          size_t count) {
  const size_t rows = block.end - block.begin;
  const size_t panels = round_up(count, kPanel) / kPanel;
  panels_times(s.keys, panels, a.head_dim * kPanel, a.head_dim, s.q + block.begin * a.head_dim, rows, s.scores,
               kPrefillTile, false);
  for (size_t r = 0; r < rows; ++r) {
    const size_t end = a.past + token_of(a, block.begin + r) + 1;  // positions this token may see
    softmax_row(s, block.begin + r, s.scores + r * kPrefillTile, end <= first ? 0 : smaller(count, end - first),
                width);
  }
  pack_x(s.scores, kPrefillTile, rows, count, rows, 0, count, s.weights);
  panels_times(s.values, width / kPanel, kPrefillTile * kPanel, count, s.weights, rows,
               s.out + block.begin * width, width, true);
}

void prefill(const PrefillArgs& a) {
  const size_t width = round_up(a.head_dim, kPanel), rows = (a.last - a.first) * a.group;
  const size_t blocks = block_count(rows, Simd::product_block);
  const PrefillScratch s = prefill_layout(a, width, rows);
  memset(s.row, 0, width * sizeof(float));
  memset(s.out, 0, rows * width * sizeof(float));
  for (size_t r = 0; r < rows; ++r) s.max[r] = kLowest, s.sum[r] = 0;
  pack_queries(a, s, rows, blocks);
  const size_t end = a.past + a.last;
  for (size_t first = 0; first < end; first += kPrefillTile) {
    const size_t count = smaller(kPrefillTile, end - first);
    load_tile(a, s, width, first, count);
    for (size_t b = 0; b < blocks; ++b) {
      const Block block = block_at(rows, blocks, b);
      if (a.past + token_of(a, block.end - 1) >= first) prefill_block(a, s, width, block, first, count);
    }
  }
  for (size_t r = 0; r < rows; ++r) {
    float* out = a.out + query_at(a, r);
    for (size_t d = 0; d < a.head_dim; ++d) out[d] = s.out[r * width + d] / s.sum[r];
  }
}

}  // namespace
}  // namespace helm
