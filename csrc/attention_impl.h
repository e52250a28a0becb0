// Attention of prompts over spans of caches, and what all attention shares, for the instruction set whose Simd was
// included before.
//
// Prompts are bound by arithmetic: tiles of K and V become f32 panels, and scores and outputs are the blocked products
// of linear layers.
#pragma once
#include "kv_row_impl.h"

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

// The rows of one KV head (of keys or of values) and sequence in a span, `stride` bytes apart, from position `at` of it on.
inline const char* rows_in(const KvSpan& span, const HeadCache& head, size_t sequence, size_t at, size_t stride) {
  return head.data + sequence * head.sequence + (span.first + at) * stride;
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

inline void pack_queries(const PrefillArgs& a, const PrefillScratch& s, const Blocks& blocks) {
  const float factor = 1.0f / sqrtf(static_cast<float>(a.head_dim));
  for (size_t b = 0; b < blocks.count; ++b) {
    const Block block = block_at(blocks, b);
    const size_t count = block.end - block.begin;
    float* target = s.q + block.begin * a.head_dim;
    for (size_t r = 0; r < count; ++r) {
      const float* q = a.q + query_at(a, block.begin + r);
      for (size_t d = 0; d < a.head_dim; ++d) target[d * count + r] = q[d] * factor;
    }
  }
}

// Rows of K and V as f32 panels, zero beyond count.
inline void load_tile(const PrefillArgs& a, const PrefillScratch& s, size_t width, size_t stride, const char* keys,
                      const char* values, size_t count) {
  if (count < kPrefillTile) {
    memset(s.keys, 0, width * kPrefillTile * sizeof(float));
    memset(s.values, 0, width * kPrefillTile * sizeof(float));
  }
  for (size_t j = 0; j < count; ++j) {
    read_row(a.format, keys + j * stride, a.head_dim, s.row);
    float* panel = s.keys + j / kPanel * a.head_dim * kPanel + j % kPanel;
    for (size_t d = 0; d < a.head_dim; ++d) panel[d * kPanel] = s.row[d];
    read_row(a.format, values + j * stride, a.head_dim, s.row);
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

// Positions [position, position + count), `at` of a span on, for all blocks of rows that see some of them.
inline void prefill_tile(const PrefillArgs& a, const PrefillScratch& s, size_t width, size_t rows, const KvSpan& span,
                         size_t at, size_t count) {
  const Blocks blocks = blocks_of(rows, Simd::product_block);
  const size_t position = span.position + at;
  const size_t stride = row_size(a.format, a.head_dim);
  load_tile(a, s, width, stride, rows_in(span, span.keys[a.kv_head], a.sequence, at, stride),
            rows_in(span, span.values[a.kv_head], a.sequence, at, stride), count);
  for (size_t b = 0; b < blocks.count; ++b) {
    const Block block = block_at(blocks, b);
    if (a.past + token_of(a, block.end - 1) >= position) prefill_block(a, s, width, block, position, count);
  }
}

// Where the running state of a row is.
inline size_t running_at(const PrefillArgs& a, size_t row) { return token_of(a, row) * a.heads + row % a.group; }

inline void begin_rows(const PrefillArgs& a, const PrefillScratch& s, size_t width, size_t rows) {
  memset(s.row, 0, width * sizeof(float));
  memset(s.out, 0, rows * width * sizeof(float));
  for (size_t r = 0; r < rows; ++r) {
    s.max[r] = a.resume ? a.max[running_at(a, r)] : kLowest;
    s.sum[r] = a.resume ? a.sum[running_at(a, r)] : 0;
    if (a.resume) memcpy(s.out + r * width, a.out + query_at(a, r), a.head_dim * sizeof(float));
  }
}

inline void end_rows(const PrefillArgs& a, const PrefillScratch& s, size_t width, size_t rows) {
  for (size_t r = 0; r < rows; ++r) {
    float* out = a.out + query_at(a, r);
    const float sum = a.finish && s.sum[r] > 0 ? s.sum[r] : 1.0f;
    for (size_t d = 0; d < a.head_dim; ++d) out[d] = s.out[r * width + d] / sum;
    if (a.finish) continue;
    a.max[running_at(a, r)] = s.max[r];
    a.sum[running_at(a, r)] = s.sum[r];
  }
}

void prefill(const PrefillArgs& a) {
  const size_t width = round_up(a.head_dim, kPanel), rows = (a.last - a.first) * a.group;
  const Blocks blocks = blocks_of(rows, Simd::product_block);
  const PrefillScratch s = prefill_layout(a, width, rows);
  begin_rows(a, s, width, rows);
  pack_queries(a, s, blocks);
  for (const KvSpan& span : a.spans) {
    const size_t end = seen(span, a.past + a.last);
    for (size_t at = 0; at < end; at += kPrefillTile)
      prefill_tile(a, s, width, rows, span, at, smaller(kPrefillTile, end - at));
  }
  end_rows(a, s, width, rows);
}

}  // namespace
}  // namespace helm
