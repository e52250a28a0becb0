// Attention of prompts over spans of caches, and what all attention shares, for the instruction set whose Simd was
// included before.
//
// Prompts are bound by arithmetic. Rows (of a token and a query head) that lie beside each other in registers meet a tile
// of positions: scores are [positions][rows], so that the running softmax of all rows is one of registers, and weights
// are where the product with V takes them. Rows of K and V are read as they are cached, as f32.
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

constexpr size_t kRowsTogether = Simd::product_panels * kPanel;  // rows of a panel of queries
static_assert(kMostRowsTogether % kRowsTogether == 0, "scratch holds whole panels");

// `depth` numbers apart of each of T factors by one: y[t][0 .. 16 P) (+)= sum over k of x[t * x_row + k * x_step] *
// w[k * w_step + 0 .. 16 P).
struct Strides {
  size_t x_row, x_step, w_step, y_row;
};

template <int P, int T>
void strided_product(const float* w, const float* x, size_t depth, float* y, const Strides& by, bool accumulate) {
  constexpr int N = P * kVectors;
  const size_t x_row = by.x_row, x_step = by.x_step, w_step = by.w_step, y_row = by.y_row;
  V acc[T][N];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) acc[t][i] = accumulate ? Simd::load(y + t * y_row + i * Simd::lanes) : Simd::zero();
  for (size_t k = 0; k < depth; ++k, x += x_step, w += w_step) {
    V factors[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) factors[i] = Simd::load(w + i * Simd::lanes);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const V factor = Simd::set(x[t * x_row]);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) acc[t][i] = Simd::fma(factor, factors[i], acc[t][i]);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) Simd::store(y + t * y_row + i * Simd::lanes, acc[t][i]);
}

using StridedProduct = void (*)(const float*, const float*, size_t, float*, const Strides&, bool);

template <int P, int T = Simd::product_block>
StridedProduct strided_for(size_t count) {
  if constexpr (T > 1)
    if (count != T) return strided_for<P, T - 1>(count);
  return strided_product<P, T>;
}

// The same for `count` factors and `columns` of y, a multiple of 16.
inline void strided_products(const float* w, const float* x, size_t count, size_t depth, float* y, size_t columns,
                             const Strides& by, bool accumulate) {
  const Blocks blocks = blocks_of(count, Simd::product_block);
  for (size_t b = 0; b < blocks.count; ++b) {
    const Block block = block_at(blocks, b);
    const size_t n = block.end - block.begin;
    const float* from = x + block.begin * by.x_row;
    float* to = y + block.begin * by.y_row;
    size_t c = 0;
    for (; c + Simd::product_panels * kPanel <= columns; c += Simd::product_panels * kPanel)
      strided_for<Simd::product_panels>(n)(w + c, from, depth, to + c, by, accumulate);
    if (c < columns) strided_for<1>(n)(w + c, from, depth, to + c, by, accumulate);
  }
}

struct PrefillScratch {
  float *keys, *values;  // [kPrefillTile][width]
  float* weights;        // [kPrefillTile][kRowsTogether]: scores, then what values are multiplied by
  float* q;              // panels [head_dim][kRowsTogether]
  float* out;            // [rows][width]
  float *max, *sum;      // [rows]
};

inline PrefillScratch prefill_layout(const PrefillArgs& a, size_t width, size_t rows) {
  PrefillScratch s;
  s.keys = a.scratch;
  s.values = s.keys + width * kPrefillTile;
  s.weights = s.values + width * kPrefillTile;
  s.q = s.weights + kPrefillTile * kRowsTogether;
  s.out = s.q + rows * width;
  s.max = s.out + rows * width;
  s.sum = s.max + rows;
  return s;
}

// Row `row` of the piece is token first + row / group, head row % group.
inline size_t token_of(const PrefillArgs& a, size_t row) { return a.first + row / a.group; }

inline size_t query_at(const PrefillArgs& a, size_t row) {
  return token_of(a, row) * a.stride + row % a.group * a.head_dim;
}

// Queries over the root of head_dim; rows beyond `rows` are zero.
inline void pack_queries(const PrefillArgs& a, const PrefillScratch& s, size_t rows) {
  const float factor = 1.0f / sqrtf(static_cast<float>(a.head_dim));
  for (size_t first = 0; first < rows; first += kRowsTogether) {
    float* panel = s.q + first * a.head_dim;
    const size_t count = smaller(kRowsTogether, rows - first);
    if (count < kRowsTogether) memset(panel, 0, kRowsTogether * a.head_dim * sizeof(float));
    for (size_t r = 0; r < count; ++r) {
      const float* q = a.q + query_at(a, first + r);
      for (size_t d = 0; d < a.head_dim; ++d) panel[d * kRowsTogether + r] = q[d] * factor;
    }
  }
}

// `count` rows of a cache as f32, `width` apart.
inline void load_rows(const PrefillArgs& a, const char* rows, size_t count, size_t width, float* to) {
  const size_t stride = row_size(a.format, a.head_dim);
  for (size_t j = 0; j < count; ++j) read_row(a.format, rows + j * stride, a.head_dim, to + j * width);
}

// The running softmax of a panel of rows from `first` on, over `count` positions from `position` on: scores become
// weights, zero where a row may not look, and what came before is scaled.
inline void softmax_panel(const PrefillArgs& a, const PrefillScratch& s, size_t width, size_t first, size_t rows,
                          size_t position, size_t count) {
  constexpr int N = Simd::product_panels * kVectors;
  const auto limit = [&](size_t row) {  // of positions of the tile, how many the row sees
    const size_t end = a.past + token_of(a, row) + 1;
    return end <= position ? 0 : smaller(count, end - position);
  };
  const bool cut = limit(first) < count;
  const auto cover = [&](float value) {
    for (size_t r = 0; r < kRowsTogether; ++r)
      for (size_t p = limit(smaller(first + r, rows - 1)); p < count; ++p) s.weights[p * kRowsTogether + r] = value;
  };
  if (cut) cover(kLowest);
  V max[N], keep[N], sum[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) max[i] = keep[i] = Simd::load(s.max + first + i * Simd::lanes);
  for (size_t p = 0; p < count; ++p)
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) max[i] = Simd::max(max[i], Simd::load(s.weights + p * kRowsTogether + i * Simd::lanes));
  bool moved = false;
  float kept[kRowsTogether];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    Simd::store(s.max + first + i * Simd::lanes, max[i]);
    Simd::store(kept + i * Simd::lanes, exp_of(Simd::sub(keep[i], max[i])));
    sum[i] = Simd::mul(Simd::load(s.sum + first + i * Simd::lanes), Simd::load(kept + i * Simd::lanes));
  }
  for (size_t p = 0; p < count; ++p)
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      float* at = s.weights + p * kRowsTogether + i * Simd::lanes;
      Simd::store(at, exp_of(Simd::sub(Simd::load(at), max[i])));
    }
  if (cut) cover(0);
  for (size_t p = 0; p < count; ++p)
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) sum[i] = Simd::add(sum[i], Simd::load(s.weights + p * kRowsTogether + i * Simd::lanes));
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) Simd::store(s.sum + first + i * Simd::lanes, sum[i]);
  for (float each : kept) moved |= each != 1.0f;
  for (size_t r = 0; moved && r < smaller(kRowsTogether, rows - first); ++r)
    if (kept[r] != 1.0f) scale(s.out + (first + r) * width, kept[r], width);
}

// Positions [position, position + count), `at` of a span on, for all rows that see some of them.
inline void prefill_tile(const PrefillArgs& a, const PrefillScratch& s, size_t width, size_t rows, const KvSpan& span,
                         size_t at, size_t count) {
  const size_t position = span.position + at, stride = row_size(a.format, a.head_dim);
  load_rows(a, rows_in(span, span.keys[a.kv_head], a.sequence, at, stride), count, width, s.keys);
  load_rows(a, rows_in(span, span.values[a.kv_head], a.sequence, at, stride), count, width, s.values);
  for (size_t first = 0; first < rows; first += kRowsTogether) {
    const size_t n = smaller(kRowsTogether, rows - first), end = a.past + token_of(a, first + n - 1) + 1;
    if (end <= position) continue;
    const size_t some = smaller(count, end - position);
    strided_products(s.q + first * a.head_dim, s.keys, some, a.head_dim, s.weights, kRowsTogether,
                     {width, 1, kRowsTogether, kRowsTogether}, false);
    softmax_panel(a, s, width, first, rows, position, some);
    strided_products(s.values, s.weights, n, some, s.out + first * width, width, {1, kRowsTogether, width, width}, true);
  }
}

// Where the running state of a row is.
inline size_t running_at(const PrefillArgs& a, size_t row) { return token_of(a, row) * a.heads + row % a.group; }

inline void begin_rows(const PrefillArgs& a, const PrefillScratch& s, size_t width, size_t rows) {
  memset(s.values, 0, width * kPrefillTile * sizeof(float));  // what is beyond head_dim stays zero
  memset(s.out, 0, rows * width * sizeof(float));
  for (size_t r = 0; r < round_up(rows, kRowsTogether); ++r) {
    const bool resume = a.resume && r < rows;
    s.max[r] = resume ? a.max[running_at(a, r)] : kLowest;
    s.sum[r] = resume ? a.sum[running_at(a, r)] : 0;
    if (resume) memcpy(s.out + r * width, a.out + query_at(a, r), a.head_dim * sizeof(float));
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
  const PrefillScratch s = prefill_layout(a, width, round_up(rows, kRowsTogether));
  begin_rows(a, s, width, rows);
  pack_queries(a, s, rows);
  for (const KvSpan& span : a.spans) {
    const size_t end = seen(span, a.past + a.last);
    for (size_t at = 0; at < end; at += kPrefillTile)
      prefill_tile(a, s, width, rows, span, at, smaller(kPrefillTile, end - at));
  }
  end_rows(a, s, width, rows);
}

}  // namespace
}  // namespace helm
