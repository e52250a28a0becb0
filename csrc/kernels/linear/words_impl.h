// Linear layers in quantised formats, multiplied as they are stored, for the instruction set whose Simd was included
// before.
//
// Activations are 16-bit numbers under a scale per run of 32 columns (Kernels::pack_words), so that products with
// codes and their sums over a span are exact integers. Up to Simd::code_stream_tokens each thread reads one ascending
// stream of codes, each used once per block of tokens. Beyond, where the processor adds such products in one
// instruction, a pair of panels is taken apart once per 256 columns and reused by all tokens from L1.
#pragma once
#ifdef __ARM_FEATURE_DOTPROD
#include "kernels/linear/quads_impl.h"
#else
#include "kernels/linear/pairs_impl.h"
#endif
#include "kernels/linear/product_impl.h"

namespace helm {
namespace {

constexpr float kWordMost = 32767.0f, kByteMost = 127.0f;
constexpr float kLeast = 1e-30f;  // runs of smaller values are zero: their inverse is no number

// A run of a token as whole numbers up to `most`, the scale that makes them values, and the sums of either half.
struct Run {
  alignas(64) int16_t whole[kRun];
  float scale, halves[2];

  float sum() const { return halves[0] + halves[1]; }
  bool sound() const { return scale == scale; }
};

// A value that is no number makes the scale none, and so does infinity, whose inverse is zero.
inline void round_run(const float* x, size_t count, float most, Run& run) {
  float padded[kRun] = {};
  if (count < kRun) x = static_cast<const float*>(memcpy(padded, x, count * sizeof(float)));
  V largest = Simd::zero();
#pragma GCC unroll 8
  for (size_t c = 0; c < kRun; c += Simd::lanes) {
    const V v = Simd::load(x + c);
    largest = Simd::max(largest, Simd::max(v, Simd::sub(Simd::zero(), v)));
  }
  const float magnitude = Simd::largest(largest);
  const V magic = Simd::set(12582912.0f);
  const V inverse = Simd::set(magnitude >= kLeast ? most / magnitude : 0.0f);
#pragma GCC unroll 2
  for (size_t half = 0; half < 2; ++half) {
    V sum = Simd::zero();
#pragma GCC unroll 4
    for (size_t c = half * 16; c < half * 16 + 16; c += Simd::lanes) {
      const V whole = Simd::sub(Simd::fma(Simd::load(x + c), inverse, magic), magic);
      sum = Simd::add(sum, whole);
      Simd::store_whole(run.whole + c, whole);
    }
    run.halves[half] = Simd::sum(sum);
  }
  run.scale = run.sum() == run.sum() ? magnitude / most : run.sum();
}

// The scale, and scale times sum.
inline void put_scale(const Run& run, size_t stride, int32_t* to) {
  const float both[2] = {run.scale, run.scale * run.sum()};
  memcpy(to, both, 4);
  memcpy(to + stride, both + 1, 4);
}

// Sixteen pairs, scale, scale times sum, and the sums of both halves.
inline void put_words(Run& run, size_t stride, size_t token, int32_t* to) {
  to += token;
  arrange_words(run.whole);
  if (stride == 1) memcpy(to, run.whole, sizeof(run.whole));
  for (size_t p = 0; p < kRun / 2 && stride > 1; ++p) memcpy(to + p * stride, run.whole + 2 * p, 4);
  put_scale(run, stride, to + 16 * stride);
#pragma GCC unroll 2
  for (size_t half = 0; half < 2; ++half)
    to[(18 + half) * stride] = run.sound() ? static_cast<int32_t>(run.halves[half]) : 0;
}

// Tokens that meet a tile together. Of two panels with sixteen lanes they have 16 sums and 16 results, some of which
// wait in L1: with six, which fit into registers, each product waited for the one before. With fewer lanes there are
// more registers to a panel: 12 sums of one, with results in registers where there are 32, else in L1.
constexpr int kTogether = Simd::lanes == 16 ? 8 : 6;

// Runs [begin, end) of all tokens in blocks of up to `limit`, `size` numbers a run, by put(run, tokens of the block,
// token, where the block's run begins).
template <class Put>
void pack_runs(const PackArgs& a, size_t limit, size_t size, float most, const Put& put) {
  const size_t runs = (a.columns + kRun - 1) / kRun;
  const Blocks blocks = blocks_of(a.tokens, limit);
  Run rounded;
  for (size_t b = 0; b < blocks.count; ++b) {
    const Block block = block_at(blocks, b);
    const size_t width = block.end - block.begin;
    int32_t* target = static_cast<int32_t*>(a.packed) + (block.begin * runs + a.begin * width) * size;
    for (size_t run = a.begin; run < a.end; ++run, target += width * size)
      for (size_t t = 0; t < width; ++t) {
        round_run(a.x + (block.begin + t) * a.stride + run * kRun, smaller(kRun, a.columns - run * kRun), most,
                  rounded);
        put(rounded, width, t, target);
      }
  }
}

void pack_words(const PackArgs& a, bool bytes) {
  const size_t limit = Simd::word_product && a.tokens > Simd::code_stream_tokens ? kTogether : Simd::words_block;
  pack_runs(a, limit, kRunWords, bytes ? kByteMost : kWordMost, put_words);
}

HELM_INLINE float float_at(const int32_t* bits) {
  float value;
  memcpy(&value, bits, 4);
  return value;
}

// Products of T tokens with span s of two panels, whose words are pairs as pairs_impl.h takes them.
template <class C, int T>
HELM_INLINE void add_products_of_two(const C (&codes)[2], size_t s, const int32_t* x, I (*sum)[kVectors],
                                     I (*other)[kVectors]) {
  const int32_t* words = x + (C::span == kRun ? 0 : s % 2 * 8) * T;
#pragma GCC unroll 4
  for (size_t q = 0; q < C::span / 8; ++q) {
    I first[4][kVectors];
    codes[0].four_pairs(s, q, [&](size_t p, int i, I w) HELM_LAMBDA { first[p % 4][i] = w; });
    codes[1].four_pairs(s, q, [&](size_t p, int i, I w) HELM_LAMBDA {
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        sum[t][i] = Simd::dot_every(sum[t][i], first[p % 4][i], words + p * T + t);
        other[t][i] = Simd::dot_every(other[t][i], w, words + p * T + t);
      }
    });
  }
}

// Sums of products of T tokens with span s of P panels, times their scales, added to `total`. Of one panel products are
// added in kChains chains, because one has to wait for the one before it.
template <class C, int P, int T>
HELM_INLINE void add_span(const C (&codes)[P], size_t s, const int32_t* x, V (*total)[T][kVectors]) {
  constexpr int wanted = C::span == kRun ? 4 : 2;
  constexpr int kChains = P * T * kVectors < wanted ? wanted / (P * T * kVectors) : 1;
  I sum[P][kChains][T][kVectors];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    const int32_t count = C::span == kRun ? x[18 * T + t] + x[19 * T + t] : x[(18 + s % 2) * T + t];
#pragma GCC unroll 16
    for (int p = 0; p < P; ++p)
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
        sum[p][0][t][i] = Simd::every(-static_cast<int32_t>(C::offset) * count);
#pragma GCC unroll 4
        for (int c = 1; c < kChains; ++c) sum[p][c][t][i] = Simd::every(0);
      }
  }
  if constexpr (P == 1)
    add_products<C, T, kChains>(codes[0], s, x, sum[0]);
  else
    add_products_of_two<C, T>(codes, s, x, sum[0][0], sum[1][0]);
#pragma GCC unroll 2
  for (int p = 0; p < P; ++p) {
    V scale[kVectors];
    codes[p].scale(s, scale);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
#pragma GCC unroll 4
        for (int c = 1; c < kChains; ++c) sum[p][0][t][i] = Simd::add_counts(sum[p][0][t][i], sum[p][c][t][i]);
        const V counted = Simd::mul(Simd::floats(sum[p][0][t][i]), Simd::set(float_at(x + 16 * T + t)));
        total[p][t][i] = Simd::fma(counted, scale[i], total[p][t][i]);
      }
    if constexpr (C::minima) {
      codes[p].minimum(s, scale);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i)
          total[p][t][i] = Simd::fma(Simd::set(float_at(x + 17 * T + t)), scale[i], total[p][t][i]);
    }
  }
}

// N registers of rows of T tokens to y, those below `valid`.
template <int T, int N>
HELM_INLINE void put_rows(const V (*rows)[N], float* y, size_t stride, size_t valid, bool accumulate) {
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t, y += stride) {
    if (valid >= N * Simd::lanes) {
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) {
        const V before = accumulate ? Simd::load(y + i * Simd::lanes) : Simd::zero();
        Simd::store(y + i * Simd::lanes, Simd::add(before, rows[t][i]));
      }
      continue;
    }
    float some[N * Simd::lanes];
    for (int i = 0; i < N; ++i) Simd::store(some + i * Simd::lanes, rows[t][i]);
    for (size_t r = 0; r < valid; ++r) y[r] = accumulate ? y[r] + some[r] : some[r];
  }
}

// P panels, `apart` bytes from each other, times T tokens.
template <Format F, int P, int T>
void words_panels(const uint8_t* panel, size_t apart, size_t columns, const int32_t* x, float* y, size_t stride,
                  size_t valid, bool accumulate, LinesAhead& ahead) {
  using C = Codes<F>;
  constexpr size_t runs = facts_of(F).columns / kRun, spans = kRun / C::span;
  V total[P][T][kVectors];
  for (auto& of_panel : total)
    for (auto& token : of_panel)
      for (auto& v : token) v = Simd::zero();
  const auto go_on = [&](const C(&codes)[P], size_t left) HELM_LAMBDA {
    const size_t count = runs == 1 ? 1 : smaller(runs, left);
    for (size_t run = 0; run < count; ++run, x += T * kRunWords) {
      ahead.ask();
#pragma GCC unroll 2
      for (size_t s = 0; s < spans; ++s) add_span<C, P, T>(codes, run * spans + s, x, total);
    }
    panel += kPanel * facts_of(F).bytes;
    return left - count;
  };
  for (size_t left = (columns + kRun - 1) / kRun; left > 0;) {
    if constexpr (P == 1)
      left = go_on({C(panel)}, left);
    else
      left = go_on({C(panel), C(panel + apart)}, left);
  }
#pragma GCC unroll 2
  for (size_t p = 0; p < P; ++p)
    if (valid > p * kPanel) put_rows<T, kVectors>(total[p], y + p * kPanel, stride, valid - p * kPanel, accumulate);
}

using WordsPanels = void (*)(const uint8_t*, size_t, size_t, const int32_t*, float*, size_t, size_t, bool, LinesAhead&);

// Panels that T tokens meet together: two where registers hold the sums of both; few tokens have several chains of
// sums instead.
template <int T>
constexpr int kPanelsStreamed = Simd::lanes == 16 && T > 4 ? 2 : 1;

struct WordsStream {
  int panels;
  WordsPanels two, one;
};

template <Format F, int T = Simd::words_block>
WordsStream words_for(size_t tokens) {
  if constexpr (T > 1)
    if (tokens != T) return words_for<F, T - 1>(tokens);
  return {kPanelsStreamed<T>, words_panels<F, kPanelsStreamed<T>, T>, words_panels<F, 1, T>};
}

// Where several blocks of tokens meet a panel, memory would rest after the first one: each asks for a part of the next.
template <Format F>
void words_stream(const LinearArgs& a) {
  const Blocks blocks = blocks_of(a.tokens, Simd::words_block);
  const size_t size = kPanel * row_size(F, a.columns), token = words_size(a.columns);
  const size_t together = words_for<F>(block_at(blocks, 0).end).panels;
  for (size_t panel = a.first_panel; panel < a.last_panel; panel += together)
    for (size_t b = 0; b < blocks.count; ++b) {
      const Block block = block_at(blocks, b);
      LinesAhead ahead;
      if (blocks.count > 1)
        ahead = lines_ahead<F>(a, panel + together, together, 0, a.columns, b, blocks.count, runs_of(a.columns));
      const WordsStream run = words_for<F>(block.end - block.begin);
      const auto multiply = [&](WordsPanels panels, size_t first) {
        panels(static_cast<const uint8_t*>(a.weights) + first * size, size, a.columns,
               static_cast<const int32_t*>(a.x) + block.begin * token, a.y + block.begin * a.stride + first * kPanel,
               a.stride, a.rows - first * kPanel, a.accumulate, ahead);
      };
      if (panel + together <= a.last_panel && static_cast<size_t>(run.panels) == together)
        multiply(run.two, panel);
      else
        for (size_t each = panel; each < smaller(panel + together, a.last_panel); ++each) multiply(run.one, each);
    }
}

}  // namespace
}  // namespace helm
