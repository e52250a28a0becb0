// Attention of prompts over spans of caches, whatever its factors are, for the instruction set whose Simd was included
// before.
//
// Prompts are bound by arithmetic. Rows (of a token and a query head) that lie beside each other in registers meet a
// tile of positions: scores are [positions][rows], so that the running softmax of all rows is one of registers, and
// weights are where the product with V takes them. Scores, softmax and sums are f32.
#pragma once
#include "kernels/attention/attention_impl.h"
#include "kernels/elementwise/transpose_impl.h"

namespace helm {
namespace {

constexpr size_t kRowsTogether = Simd::product_panels * kPanel;  // rows of a panel of queries
static_assert(kMostRowsTogether % kRowsTogether == 0, "scratch holds whole panels");

// How far apart the numbers of a product lie: y[t * y_row + 0 .. 16 P) (+)= sum over k < depth of
// x[t * x_row + k * x_step] * w[k * w_step + 0 .. 16 P), for T rows t.
struct Strides {
  size_t x_row, x_step, w_step, y_row;
};

// What sums of whole numbers are multiplied by: those of row t by of_x[t], and where they are not added to y those of a
// column by of_w[column].
struct Scales {
  const float *of_x, *of_w;
};

// Numbers has a Number, the Register that holds some, and their Sum. load(p): neighbours; every(x): one in all lanes;
// begin(y): a sum to which products are added, of what is at y, or of nothing where that is null; add_product(sum, w,
// x): sum + w x; end(sum, y, scales, t, column): f32 of it.
template <class Numbers, int P, int T>
void strided_product(const typename Numbers::Number* w, const typename Numbers::Number* x, size_t depth, float* y,
                     const Strides& by, const Scales& scales, bool accumulate) {
  constexpr int N = P * kVectors;
  const size_t x_row = by.x_row, x_step = by.x_step, w_step = by.w_step, y_row = by.y_row;
  const auto before = [&](int t, int i) HELM_LAMBDA { return accumulate ? y + t * y_row + i * Simd::lanes : nullptr; };
  typename Numbers::Sum acc[T][N];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) acc[t][i] = Numbers::begin(before(t, i));
  for (size_t k = 0; k < depth; ++k, x += x_step, w += w_step) {
    typename Numbers::Register factors[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) factors[i] = Numbers::load(w + i * Simd::lanes);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const auto factor = Numbers::every(x[t * x_row]);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) acc[t][i] = Numbers::add_product(acc[t][i], factors[i], factor);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i)
      Simd::store(y + t * y_row + i * Simd::lanes, Numbers::end(acc[t][i], before(t, i), scales, t, i * Simd::lanes));
}

// Sums in f32, which need no scale.
struct SumsOfFloats {
  using Sum = V;
  HELM_INLINE static Sum begin(const float* y) { return y == nullptr ? Simd::zero() : Simd::load(y); }
  HELM_INLINE static V end(Sum sum, const float*, const Scales&, size_t, size_t) { return sum; }
};

template <class Numbers>
using StridedProduct = void (*)(const typename Numbers::Number*, const typename Numbers::Number*, size_t, float*,
                                const Strides&, const Scales&, bool);

template <class Numbers, int P, int T = Simd::product_block>
StridedProduct<Numbers> strided_for(size_t count) {
  if constexpr (T > 1)
    if (count != T) return strided_for<Numbers, P, T - 1>(count);
  return strided_product<Numbers, P, T>;
}

// The same for `count` rows and `columns` of y, a multiple of 16.
template <class Numbers>
void strided_products(const typename Numbers::Number* w, const typename Numbers::Number* x, size_t count, size_t depth,
                      float* y, size_t columns, const Strides& by, const Scales& scales, bool accumulate) {
  const Blocks blocks = blocks_of(count, Simd::product_block);
  for (size_t b = 0; b < blocks.count; ++b) {
    const Block block = block_at(blocks, b);
    const size_t n = block.end - block.begin;
    const auto* from = x + block.begin * by.x_row;
    float* to = y + block.begin * by.y_row;
    const auto scales_at = [&](size_t c) { return Scales{scales.of_x + block.begin, scales.of_w + c}; };
    size_t c = 0;
    for (; c + Simd::product_panels * kPanel <= columns; c += Simd::product_panels * kPanel)
      strided_for<Numbers, Simd::product_panels>(n)(w + c, from, depth, to + c, by, scales_at(c), accumulate);
    if (c < columns) strided_for<Numbers, 1>(n)(w + c, from, depth, to + c, by, scales_at(c), accumulate);
  }
}

// What a piece keeps; numbers lie as Factors say. `width`: head_dim up to whole panels.
struct PrefillScratch {
  size_t width;
  float *keys, *values;  // of kPrefillTile positions
  float* scores;         // [kPrefillTile][kRowsTogether], then weights
  float* q;              // panels of kRowsTogether rows
  float* out;            // as SumsByRow or SumsByPanel lay them out
  float *max, *sum;      // [rows]
  // Of whole numbers: [rows], [kPrefillTile], [kPrefillTile], and [kRowsTogether] of a panel's weights.
  float *query_scales, *key_scales, *value_scales, *weight_scales;
};

inline PrefillScratch prefill_layout(const PrefillArgs& a, size_t rows) {
  PrefillScratch s;
  s.width = round_up(a.head_dim, kPanel);
  s.keys = a.scratch;
  s.values = s.keys + s.width * kPrefillTile;
  s.scores = s.values + s.width * kPrefillTile;
  s.q = s.scores + kPrefillTile * kRowsTogether;
  s.out = s.q + rows * s.width;
  s.max = s.out + rows * s.width;
  s.sum = s.max + rows;
  s.query_scales = s.sum + rows;
  s.key_scales = s.query_scales + rows;
  s.value_scales = s.key_scales + kPrefillTile;
  s.weight_scales = s.value_scales + kPrefillTile;
  return s;
}

// Sums of a row side by side: [rows][width].
struct SumsByRow {
  static float* sum_at(const PrefillScratch& s, size_t row, size_t d) { return s.out + row * s.width + d; }
  // The rows of a panel, [kRowsTogether][width].
  static const float* rows_of(const PrefillScratch& s, size_t first) { return sum_at(s, first, 0); }
  // Multiplies the sums of a panel's first `rows` rows by kept[row].
  static void scale_panel(const PrefillScratch& s, size_t first, size_t rows, const float* kept) {
    for (size_t r = 0; r < rows; ++r)
      if (kept[r] != 1.0f) scale(sum_at(s, first + r, 0), kept[r], s.width);
  }
};

// Sums of a panel's rows side by side: [panels][width][kRowsTogether].
struct SumsByPanel {
  static float* sum_at(const PrefillScratch& s, size_t row, size_t d) {
    return s.out + row / kRowsTogether * kRowsTogether * s.width + d * kRowsTogether + row % kRowsTogether;
  }
  // The same, transposed to where keys were: after the last tile of positions.
  static const float* rows_of(const PrefillScratch& s, size_t first) {
    transpose_words(reinterpret_cast<const int32_t*>(sum_at(s, first, 0)), s.width, kRowsTogether,
                    reinterpret_cast<int32_t*>(s.keys), s.width);
    return s.keys;
  }
  // Of all rows, whether they exist or not.
  static void scale_panel(const PrefillScratch& s, size_t first, size_t, const float* kept) {
    constexpr size_t N = kRowsTogether / Simd::lanes;
    const size_t numbers = s.width * kRowsTogether;
    V factor[N];
#pragma GCC unroll 4
    for (size_t i = 0; i < N; ++i) factor[i] = Simd::load(kept + i * Simd::lanes);
    float* sums = sum_at(s, first, 0);
    for (size_t at = 0; at < numbers; at += kRowsTogether)
#pragma GCC unroll 4
      for (size_t i = 0; i < N; ++i)
        Simd::store(sums + at + i * Simd::lanes, Simd::mul(Simd::load(sums + at + i * Simd::lanes), factor[i]));
  }
};

// Row `row` of the piece is token first + row / group, head row % group.
inline size_t token_of(const PrefillArgs& a, size_t row) { return a.first + row / a.group; }

// The first position that a row sees.
inline size_t sees_from(const PrefillArgs& a, size_t row) {
  const size_t end = a.past + token_of(a, row) + 1;
  return a.scoring.window > 0 && end > a.scoring.window ? end - a.scoring.window : 0;
}

inline size_t query_at(const PrefillArgs& a, size_t row) {
  return token_of(a, row) * a.stride + row % a.group * a.head_dim;
}

// `count` rows of a cache as f32, `width` apart.
inline void load_rows(const PrefillArgs& a, const char* rows, size_t count, size_t width, float* to) {
  const size_t stride = row_size(a.format, a.head_dim);
  for (size_t j = 0; j < count; ++j) read_row(a.format, rows + j * stride, a.head_dim, to + j * width);
}

// The running softmax of a panel of rows from `first` on, over `count` positions from `position` on: scores become
// weights, zero where a row may not look, and what came before is scaled.
template <class Factors>
void softmax_panel(const PrefillArgs& a, const PrefillScratch& s, size_t first, size_t rows, size_t position,
                   size_t count) {
  constexpr int N = Simd::product_panels * kVectors;
  const auto limit = [&](size_t row) {  // of positions of the tile, how many the row sees
    const size_t end = a.past + token_of(a, row) + 1;
    return end <= position ? 0 : smaller(count, end - position);
  };
  const auto gone = [&](size_t row) {  // how many lie before its window
    const size_t begin = sees_from(a, row);
    return begin <= position ? 0 : smaller(count, begin - position);
  };
  const bool cut = limit(first) < count || gone(smaller(first + kRowsTogether, rows) - 1) > 0;
  const auto cover = [&](float value) {
    for (size_t r = 0; r < kRowsTogether; ++r) {
      const size_t row = smaller(first + r, rows - 1);
      for (size_t p = limit(row); p < count; ++p) s.scores[p * kRowsTogether + r] = value;
      for (size_t p = gone(row); p-- > 0;) s.scores[p * kRowsTogether + r] = value;
    }
  };
  if (cut) cover(kLowest);
  V max[N], odd_max[N], keep[N], carried[N], sum[N];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) max[i] = odd_max[i] = keep[i] = Simd::load(s.max + first + i * Simd::lanes);
  const auto score_at = [&](size_t p, int i) HELM_LAMBDA { return s.scores + p * kRowsTogether + i * Simd::lanes; };
  size_t next = 0;
  for (; next + 2 <= count; next += 2)  // two chains: one would wait for itself
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      max[i] = Simd::max(max[i], Simd::load(score_at(next, i)));
      odd_max[i] = Simd::max(odd_max[i], Simd::load(score_at(next + 1, i)));
    }
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    max[i] = Simd::max(max[i], odd_max[i]);
    if (next < count) max[i] = Simd::max(max[i], Simd::load(score_at(next, i)));
  }
  bool moved = false;
  float kept[kRowsTogether];
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) {
    Simd::store(s.max + first + i * Simd::lanes, max[i]);
    Simd::store(kept + i * Simd::lanes, exp_of(Simd::sub(keep[i], max[i])));
    sum[i] = carried[i] = Simd::mul(Simd::load(s.sum + first + i * Simd::lanes), Simd::load(kept + i * Simd::lanes));
  }
  for (size_t p = 0; p < count; ++p)
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) {
      const V weight = Factors::exponential(Simd::sub(Simd::load(score_at(p, i)), max[i]));
      sum[i] = Simd::add(sum[i], weight);
      Simd::store(score_at(p, i), weight);
    }
  if (cut) {
    cover(0);
#pragma GCC unroll 4
    for (int i = 0; i < N; ++i) sum[i] = carried[i];
    for (size_t p = 0; p < count; ++p)
#pragma GCC unroll 4
      for (int i = 0; i < N; ++i) sum[i] = Simd::add(sum[i], Simd::load(score_at(p, i)));
  }
#pragma GCC unroll 4
  for (int i = 0; i < N; ++i) Simd::store(s.sum + first + i * Simd::lanes, sum[i]);
  for (float each : kept) moved |= each != 1.0f;
  if (moved) Factors::scale_panel(s, first, smaller(kRowsTogether, rows - first), kept);
}

// A tile of positions times a panel of rows, in registers. Of Numbers each holds `together` neighbouring columns of q
// and of K, or weights and values of as many positions.
template <class Numbers, size_t together>
struct RegisterProducts : SumsByRow {
  using Number = typename Numbers::Number;

  static void scores(const PrefillScratch& s, size_t first, size_t some) {
    const size_t depth = s.width / together;
    strided_products<Numbers>(reinterpret_cast<const Number*>(s.q) + first * depth,
                              reinterpret_cast<const Number*>(s.keys), some, depth, s.scores, kRowsTogether,
                              {depth, 1, kRowsTogether, kRowsTogether}, {s.key_scales, s.query_scales + first}, false);
  }
  static void add_values(const PrefillScratch& s, const Number* weights, size_t first, size_t rows, size_t some) {
    strided_products<Numbers>(reinterpret_cast<const Number*>(s.values), weights, rows,
                              (some + together - 1) / together, sum_at(s, first, 0), s.width,
                              {1, kRowsTogether, s.width, s.width}, {s.weight_scales, s.weight_scales}, true);
  }
};

// Prefetches part `part` of `parts` of the keys and values of `count` positions, `at` of a span on, while others are
// multiplied: every piece of a prompt reads them from memory again.
HELM_INLINE void ask_for_rows(const PrefillArgs& a, const KvSpan& span, size_t at, size_t count, size_t part,
                              size_t parts) {
  const size_t stride = row_size(a.format, a.head_dim), bytes = count * stride;
  for (const HeadCache* head : {&span.keys[a.kv_head], &span.values[a.kv_head]}) {
    const char* rows = rows_in(span, *head, a.sequence, at, stride);
    for (size_t byte = bytes * part / parts / kLine * kLine; byte < bytes * (part + 1) / parts; byte += kLine)
      __builtin_prefetch(rows + byte, 0, 2);
  }
}

// Positions [position, position + count), `at` of a span on, for all rows that see some of them. `next`: how many of
// the span's positions follow.
//
// Factors say what is multiplied, and how. pack(a, s, first, count): queries times their factor to a panel, zero beyond
// head_dim; load_keys and load_values(a, s, rows, count): positions of the cache to a tile; scores(s, first, some): of
// a panel with so many positions; exponential(x) of x <= 0; weights(a, s, count): what softmax_panel left, as
// add_values(s, weights, first, rows, some) takes it for the sums of a panel; sum_at, rows_of, scale_panel: SumsByRow
// or SumsByPanel.
template <class Factors>
void prefill_tile(const PrefillArgs& a, const PrefillScratch& s, size_t rows, const KvSpan& span, size_t at,
                  size_t count, size_t next) {
  const size_t position = span.position + at, stride = row_size(a.format, a.head_dim);
  Factors::load_keys(a, s, rows_in(span, span.keys[a.kv_head], a.sequence, at, stride), count);
  Factors::load_values(a, s, rows_in(span, span.values[a.kv_head], a.sequence, at, stride), count);
  const size_t panels = round_up(rows, kRowsTogether) / kRowsTogether;
  for (size_t first = 0; first < rows; first += kRowsTogether) {
    ask_for_rows(a, span, at + count, smaller(kPrefillTile, next), first / kRowsTogether, panels);
    const size_t n = smaller(kRowsTogether, rows - first), end = a.past + token_of(a, first + n - 1) + 1;
    if (end <= position || sees_from(a, first) >= position + count) continue;
    const size_t some = smaller(count, end - position);
    Factors::scores(s, first, some);
    if (a.scoring.softcap > 0) cap_scores(s.scores, some * kRowsTogether, a.scoring.softcap);
    softmax_panel<Factors>(a, s, first, rows, position, some);
    Factors::add_values(s, Factors::weights(a, s, some), first, n, some);
  }
}

// Where the running state of a row is.
inline size_t running_at(const PrefillArgs& a, size_t row) { return token_of(a, row) * a.heads + row % a.group; }

template <class Factors>
void begin_rows(const PrefillArgs& a, const PrefillScratch& s, size_t rows) {
  if (a.head_dim < s.width)
    memset(
        s.keys, 0,
        2 * s.width * kPrefillTile * sizeof(float));  // keys beyond it stay zero; sums of values beyond it are not read
  memset(s.out, 0, round_up(rows, kRowsTogether) * s.width * sizeof(float));
  for (size_t r = 0; r < round_up(rows, kRowsTogether); ++r) {
    const bool resume = a.resume && r < rows;
    const bool sinks = !a.resume && a.sinks != nullptr && r < rows;
    s.max[r] = resume ? a.max[running_at(a, r)] : sinks ? a.sinks[r % a.group] : kLowest;
    s.sum[r] = resume ? a.sum[running_at(a, r)] : sinks ? 1.0f : 0.0f;
    if (!resume) continue;
    for (size_t d = 0; d < a.head_dim; ++d) *Factors::sum_at(s, r, d) = a.out[query_at(a, r) + d];
  }
}

template <class Factors>
void end_rows(const PrefillArgs& a, const PrefillScratch& s, size_t rows) {
  const float* sums = nullptr;
  for (size_t r = 0; r < rows; ++r, sums += s.width) {
    if (r % kRowsTogether == 0) sums = Factors::rows_of(s, r);
    float* out = a.out + query_at(a, r);
    const float sum = a.finish && s.sum[r] > 0 ? s.sum[r] : 1.0f;
    for (size_t d = 0; d < a.head_dim; ++d) out[d] = sums[d] / sum;
    if (a.finish) continue;
    a.max[running_at(a, r)] = s.max[r];
    a.sum[running_at(a, r)] = s.sum[r];
  }
}

template <class Factors>
void prefill_of(const PrefillArgs& a) {
  const size_t rows = (a.last - a.first) * a.group;
  const PrefillScratch s = prefill_layout(a, round_up(rows, kRowsTogether));
  begin_rows<Factors>(a, s, rows);
  for (size_t first = 0; first < rows; first += kRowsTogether)
    Factors::pack(a, s, first, smaller(kRowsTogether, rows - first));
  for (const KvSpan& span : a.spans) {
    const size_t end = seen(span, a.past + a.last), begin = sees_from(a, 0);
    const size_t gone = begin > span.position ? (begin - span.position) / kPrefillTile * kPrefillTile : 0;
    for (size_t at = gone; at < end; at += kPrefillTile) {
      const size_t count = smaller(kPrefillTile, end - at);
      prefill_tile<Factors>(a, s, rows, span, at, count, end - at - count);
    }
  }
  end_rows<Factors>(a, s, rows);
}

}  // namespace
}  // namespace helm
