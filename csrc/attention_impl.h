// Attention over spans of caches, for the instruction set whose Simd was included before.
//
// Decode is bound by reading K and V: blocks of sixteen positions are read in ascending order, and up to four query
// heads of the group share each widened register. Prefill is bound by arithmetic: tiles of K and V become f32
// panels, and scores and outputs are the blocked products of linear layers.
#pragma once
#include "elementwise_impl.h"

namespace helm {
namespace {

constexpr float kLowest = -3.4028235e38f;  // no score is below it; -inf would make NaN in differences

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

// A block of kDecodeRows positions: where they are, and how far apart.
struct Rows {
  const void* data;
  Format format;
  size_t stride;  // elements
  bool streams;   // the cache itself, read in order: more follows
};

// The rows [count][head_dim] of one KV head and sequence in a span, from position `at` of it on.
inline const void* rows_in(Format format, const HeadCache& head, size_t sequence, size_t at, size_t head_dim) {
  return offset(format, head.data + sequence * head.sequence, at * head_dim);
}

// A place among the positions of a DecodeArgs.
struct Place {
  const KvSpan* span;
  size_t at;
};

// How many positions follow each other from a place on; moves it to where there are some. There must be.
inline size_t settle(const DecodeArgs& a, Place& place) {
  while (place.at >= seen(*place.span, a.limit)) place.at -= seen(*place.span, a.limit), ++place.span;
  return seen(*place.span, a.limit) - place.at;
}

// The next `count` positions. They are used where they are, unless the block is not full, or not of one span, or rows
// are not whole registers: then as f32 in `scratch` [kDecodeRows][width], padded with zeros.
template <const HeadCache* KvSpan::*kCaches>
inline Rows next_rows(const DecodeArgs& a, Place& place, size_t count, size_t width, float* scratch) {
  const auto data = [&] {
    return rows_in(a.format, (place.span->*kCaches)[a.kv_head], a.sequence, place.at, a.head_dim);
  };
  if (count == kDecodeRows && width == a.head_dim && settle(a, place) >= count) {
    const Rows rows{data(), a.format, width, true};
    place.at += count;
    return rows;
  }
  memset(scratch, 0, kDecodeRows * width * sizeof(float));
  for (size_t r = 0; r < count; ++r, ++place.at) {
    settle(a, place);
    widen(a.format, data(), a.head_dim, scratch + r * width);
  }
  return {scratch, Format::f32, width, false};
}

// scores[g * kDecodeTile + r] of R rows from `first` on and G queries, R * G = lanes. Row after row, so that the
// cache is read in ascending order; the rows' accumulators overlap by out-of-order execution.
template <Format F, int R, int G>
void scores_tile(const Rows& rows, size_t first, const float* q, bool ahead, float* scores) {
  const size_t width = rows.stride;
  V acc[R * G];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    const size_t begin = (first + r) * width;
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) acc[g * R + r] = Simd::zero();
    for (size_t d = 0; d < width; d += Simd::lanes) {
      if (ahead) prefetch<F>(rows.data, begin + d);
      const V row = load_as<F>(rows.data, begin + d);
#pragma GCC unroll 16
      for (int g = 0; g < G; ++g) acc[g * R + r] = Simd::fma(row, Simd::load(q + g * width + d), acc[g * R + r]);
    }
  }
  float sums[R * G];
  Simd::store(sums, Simd::sums(acc));
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g) memcpy(scores + g * kDecodeTile + first, sums + g * R, R * sizeof(float));
}

template <Format F, int G>
void scores_block(const Rows& rows, const float* q, bool ahead, float* scores) {
  constexpr int R = Simd::lanes / G;
  for (size_t r = 0; r < kDecodeRows; r += R) scores_tile<F, R, G>(rows, r, q, ahead, scores);
}

// Scores of a block against all queries, four, two or one at a time; the first ones bring the cache in.
template <Format F>
void scores_of(const Rows& rows, const float* q, size_t group, float* scores) {
  size_t g = 0;
  const size_t width = rows.stride;
  const auto ahead = [&] { return rows.streams && g == 0; };
  for (; g + 4 <= group; g += 4)
    scores_block<F, 4>(rows, q + g * width, ahead(), scores + g * kDecodeTile);
  for (; g + 2 <= group; g += 2)
    scores_block<F, 2>(rows, q + g * width, ahead(), scores + g * kDecodeTile);
  for (; g < group; ++g)
    scores_block<F, 1>(rows, q + g * width, ahead(), scores + g * kDecodeTile);
}

// out[g][d...] += sum over the block's rows of p[g][r] * rows[r][d...]: N registers of G heads.
template <Format F, int N, int G>
void weighted_columns(const Rows& rows, size_t d, const float* p, bool ahead, float* out) {
  const size_t width = rows.stride;
  V acc[G][N];
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) acc[g][i] = Simd::load(out + g * width + d + i * Simd::lanes);
  for (size_t r = 0; r < kDecodeRows; ++r) {
    V factor[G];
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) factor[g] = Simd::set(p[g * kDecodeTile + r]);
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      if (ahead) prefetch<F>(rows.data, r * width + d + i * Simd::lanes);
      const V value = load_as<F>(rows.data, r * width + d + i * Simd::lanes);
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
void weighted_block(const Rows& rows, const float* p, bool ahead, float* out) {
  constexpr int N = Simd::lanes == 16 ? 8 : 8 / G;  // sixteen accumulators where there are 32 registers, else eight
  size_t d = 0;
  for (; d + N * Simd::lanes <= rows.stride; d += N * Simd::lanes)
    weighted_columns<F, N, G>(rows, d, p, ahead, out);
  for (; d < rows.stride; d += Simd::lanes) weighted_columns<F, 1, G>(rows, d, p, ahead, out);
}

template <Format F>
void weighted_of(const Rows& rows, const float* p, size_t group, float* out) {
  size_t g = 0;
  const size_t width = rows.stride;
  const auto ahead = [&] { return rows.streams && g == 0; };
  for (; g + 2 <= group; g += 2)
    weighted_block<F, 2>(rows, p + g * kDecodeTile, ahead(), out + g * width);
  for (; g < group; ++g)
    weighted_block<F, 1>(rows, p + g * kDecodeTile, ahead(), out + g * width);
}

inline void scores(const Rows& rows, const float* q, size_t group, float* out) {
  if (rows.format == Format::f32) scores_of<Format::f32>(rows, q, group, out);
  if (rows.format == Format::f16) scores_of<Format::f16>(rows, q, group, out);
  if (rows.format == Format::bf16) scores_of<Format::bf16>(rows, q, group, out);
}

inline void weighted(const Rows& rows, const float* p, size_t group, float* out) {
  if (rows.format == Format::f32) weighted_of<Format::f32>(rows, p, group, out);
  if (rows.format == Format::f16) weighted_of<Format::f16>(rows, p, group, out);
  if (rows.format == Format::bf16) weighted_of<Format::bf16>(rows, p, group, out);
}

struct DecodeScratch {
  float *rows, *q, *out, *scores;
};

inline DecodeScratch decode_layout(const DecodeArgs& a, size_t width) {
  float* q = a.scratch + kDecodeRows * width;
  float* out = q + a.group * width;
  return {a.scratch, q, out, out + a.group * width};
}

// A step of the running softmax: scores [group][kDecodeTile] become weights, `count` of them, zero to the block's end.
inline void softmax_tile(const DecodeArgs& a, const DecodeScratch& s, size_t width, size_t count) {
  for (size_t g = 0; g < a.group; ++g) {
    float* x = s.scores + g * kDecodeTile;
    const float max = largest_of(x, count, a.max[g]);
    const float keep = ratio(a.max[g], max);
    a.sum[g] = a.sum[g] * keep + exponentials(x, count, max);
    a.max[g] = max;
    for (size_t r = count; r < round_up(count, kDecodeRows); ++r) x[r] = 0;
    if (keep != 1.0f) scale(s.out + g * width, keep, width);
  }
}

// The next `count` positions.
inline void decode_tile(const DecodeArgs& a, const DecodeScratch& s, size_t width, Place& place, size_t count) {
  Place keys = place;
  for (size_t r = 0; r < count; r += kDecodeRows)
    scores(next_rows<&KvSpan::keys>(a, keys, smaller(kDecodeRows, count - r), width, s.rows), s.q, a.group, s.scores + r);
  softmax_tile(a, s, width, count);
  for (size_t r = 0; r < count; r += kDecodeRows)
    weighted(next_rows<&KvSpan::values>(a, place, smaller(kDecodeRows, count - r), width, s.rows), s.scores + r, a.group,
             s.out);
}

void decode(const DecodeArgs& a) {
  const size_t width = round_up(a.head_dim, kPanel);
  const DecodeScratch s = decode_layout(a, width);
  const float factor = 1.0f / sqrtf(static_cast<float>(a.head_dim));
  memset(s.q, 0, 2 * a.group * width * sizeof(float));
  for (size_t g = 0; g < a.group; ++g) {
    for (size_t d = 0; d < a.head_dim; ++d) s.q[g * width + d] = a.q[g * a.head_dim + d] * factor;
    if (a.resume) {
      memcpy(s.out + g * width, a.out + g * a.head_dim, a.head_dim * sizeof(float));
    } else {
      a.max[g] = kLowest;
      a.sum[g] = 0;
    }
  }
  Place place{a.spans.begin(), a.begin};
  for (size_t first = a.begin; first < a.end; first += kDecodeTile)
    decode_tile(a, s, width, place, smaller(kDecodeTile, a.end - first));
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

// Rows of K and V as f32 panels, zero beyond count.
inline void load_tile(const PrefillArgs& a, const PrefillScratch& s, size_t width, const void* keys, const void* values,
                      size_t count) {
  if (count < kPrefillTile) {
    memset(s.keys, 0, width * kPrefillTile * sizeof(float));
    memset(s.values, 0, width * kPrefillTile * sizeof(float));
  }
  for (size_t j = 0; j < count; ++j) {
    widen(a.format, offset(a.format, keys, j * a.head_dim), a.head_dim, s.row);
    float* panel = s.keys + j / kPanel * a.head_dim * kPanel + j % kPanel;
    for (size_t d = 0; d < a.head_dim; ++d) panel[d * kPanel] = s.row[d];
    widen(a.format, offset(a.format, values, j * a.head_dim), a.head_dim, s.row);
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
  const size_t blocks = block_count(rows, Simd::product_block), position = span.position + at;
  load_tile(a, s, width, rows_in(a.format, span.keys[a.kv_head], a.sequence, at, a.head_dim),
            rows_in(a.format, span.values[a.kv_head], a.sequence, at, a.head_dim), count);
  for (size_t b = 0; b < blocks; ++b) {
    const Block block = block_at(rows, blocks, b);
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
  const size_t blocks = block_count(rows, Simd::product_block);
  const PrefillScratch s = prefill_layout(a, width, rows);
  begin_rows(a, s, width, rows);
  pack_queries(a, s, rows, blocks);
  for (const KvSpan& span : a.spans) {
    const size_t end = seen(span, a.past + a.last);
    for (size_t at = 0; at < end; at += kPrefillTile)
      prefill_tile(a, s, width, rows, span, at, smaller(kPrefillTile, end - at));
  }
  end_rows(a, s, width, rows);
}

}  // namespace
}  // namespace helm
