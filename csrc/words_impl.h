// Linear layers in quantised formats, multiplied as they are stored, for the instruction set whose Simd was included
// before.
//
// Activations are 16-bit numbers under a scale per run of 32 columns (Kernels::pack_words), so that products with
// codes and their sums over a span are exact integers. Up to Simd::stream_tokens each thread reads one ascending stream
// of codes, each used once per block of tokens. Beyond, where the processor adds such products in one instruction, a
// pair of panels is taken apart once per 256 columns and reused by all tokens from L1.
#pragma once
#ifdef __ARM_FEATURE_DOTPROD
#include "quads_impl.h"
#else
#include "pairs_impl.h"
#endif
#include "product_impl.h"

namespace helm {
namespace {

constexpr float kWordMost = 32767.0f;
constexpr float kWordLeast = 1e-30f;  // runs of smaller values are zero: their inverse is no number

// One run of a token: sixteen pairs, scale, scale times sum, and the sums of both halves. A value that is no number
// makes its half's sum none, and so does infinity, whose inverse is zero.
inline void pack_run(const float* x, size_t count, size_t stride, int32_t* to) {
  float padded[kRun] = {};
  if (count < kRun) x = static_cast<const float*>(memcpy(padded, x, count * sizeof(float)));
  V largest = Simd::zero();
#pragma GCC unroll 8
  for (size_t c = 0; c < kRun; c += Simd::lanes) {
    const V v = Simd::load(x + c);
    largest = Simd::max(largest, Simd::max(v, Simd::sub(Simd::zero(), v)));
  }
  const float most = Simd::largest(largest);
  const V magic = Simd::set(12582912.0f);
  const V inverse = Simd::set(most >= kWordLeast ? kWordMost / most : 0.0f);
  alignas(64) int16_t words[kRun];
  float sums[2];
#pragma GCC unroll 2
  for (size_t half = 0; half < 2; ++half) {
    V sum = Simd::zero();
#pragma GCC unroll 4
    for (size_t c = half * 16; c < half * 16 + 16; c += Simd::lanes) {
      const V whole = Simd::sub(Simd::fma(Simd::load(x + c), inverse, magic), magic);
      sum = Simd::add(sum, whole);
      Simd::store_whole(words + c, whole);
    }
    sums[half] = Simd::sum(sum);
  }
  arrange_words(words);
  if (stride == 1) memcpy(to, words, sizeof(words));
  for (size_t p = 0; p < kRun / 2 && stride > 1; ++p) memcpy(to + p * stride, words + 2 * p, 4);
  const float sum = sums[0] + sums[1], scale = sum == sum ? most / kWordMost : sum, both[2] = {scale, scale * sum};
  memcpy(to + 16 * stride, both, 4);
  memcpy(to + 17 * stride, both + 1, 4);
#pragma GCC unroll 2
  for (size_t half = 0; half < 2; ++half) to[(18 + half) * stride] = sum == sum ? static_cast<int32_t>(sums[half]) : 0;
}

constexpr int kWordsTogether = 6;  // tokens times a pair of panels: 12 sums and 12 results are 24 of 32 registers

inline size_t words_limit(size_t tokens) {
  return tokens <= Simd::stream_tokens ? Simd::words_block : kWordsTogether;
}

void pack_words(const float* x, size_t stride, size_t tokens, size_t columns, size_t begin, size_t end,
                int32_t* packed) {
  const size_t runs = (columns + kRun - 1) / kRun;
  const Blocks blocks = blocks_of(tokens, words_limit(tokens));
  for (size_t b = 0; b < blocks.count; ++b) {
    const Block block = block_at(blocks, b);
    const size_t width = block.end - block.begin;
    int32_t* target = packed + (block.begin * runs + begin * width) * kRunWords;
    for (size_t run = begin; run < end; ++run, target += width * kRunWords)
      for (size_t t = 0; t < width; ++t)
        pack_run(x + (block.begin + t) * stride + run * kRun, smaller(kRun, columns - run * kRun), width, target + t);
  }
}

HELM_INLINE float float_at(const int32_t* bits) {
  float value;
  memcpy(&value, bits, 4);
  return value;
}

// Sums of products of T tokens with a span, times their scales, added to `total`. Products are added in kChains chains,
// because one has to wait for the one before it.
template <class C, int T>
HELM_INLINE void add_span(const C& code, size_t s, const int32_t* x, V (*total)[kVectors]) {
  constexpr int wanted = C::span == kRun ? 4 : 2, kChains = T * kVectors < wanted ? wanted / (T * kVectors) : 1;
  I sum[kChains][T][kVectors];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    const int32_t count = C::span == kRun ? x[18 * T + t] + x[19 * T + t] : x[(18 + s % 2) * T + t];
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      sum[0][t][i] = Simd::every(-static_cast<int32_t>(C::offset) * count);
#pragma GCC unroll 4
      for (int c = 1; c < kChains; ++c) sum[c][t][i] = Simd::every(0);
    }
  }
  add_products<C, T, kChains>(code, s, x, sum);
  V scale[kVectors];
  code.scale(s, scale);
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
#pragma GCC unroll 4
      for (int c = 1; c < kChains; ++c) sum[0][t][i] = Simd::add_counts(sum[0][t][i], sum[c][t][i]);
      const V counted = Simd::mul(Simd::floats(sum[0][t][i]), Simd::set(float_at(x + 16 * T + t)));
      total[t][i] = Simd::fma(counted, scale[i], total[t][i]);
    }
  if constexpr (C::minima) {
    code.minimum(s, scale);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) total[t][i] = Simd::fma(Simd::set(float_at(x + 17 * T + t)), scale[i], total[t][i]);
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

// One panel times T tokens.
template <Format F, int T>
void words_panel(const uint8_t* panel, size_t columns, const int32_t* x, float* y, size_t stride, size_t valid,
                 bool accumulate) {
  using C = Codes<F>;
  constexpr size_t runs = block_of(F).columns / kRun, spans = kRun / C::span;
  V total[T][kVectors];
  for (auto& token : total)
    for (auto& v : token) v = Simd::zero();
  for (size_t left = (columns + kRun - 1) / kRun; left > 0;) {
    const size_t count = runs == 1 ? 1 : smaller(runs, left);
    const C code(panel);
    panel += kPanel * block_of(F).bytes;
    for (size_t run = 0; run < count; ++run, x += T * kRunWords)
#pragma GCC unroll 2
      for (size_t s = 0; s < spans; ++s) add_span<C, T>(code, run * spans + s, x, total);
    left -= count;
  }
  put_rows<T, kVectors>(total, y, stride, valid, accumulate);
}

using WordsPanel = void (*)(const uint8_t*, size_t, const int32_t*, float*, size_t, size_t, bool);

template <Format F, int T = Simd::words_block>
WordsPanel words_for(size_t tokens) {
  if constexpr (T > 1)
    if (tokens != T) return words_for<F, T - 1>(tokens);
  return words_panel<F, T>;
}

template <Format F>
void words_stream(const LinearArgs& a) {
  const Blocks blocks = blocks_of(a.tokens, Simd::words_block);
  const size_t size = kPanel * row_size(F, a.columns);
  const size_t token = words_size(a.columns);
  for (size_t panel = a.first_panel; panel < a.last_panel; ++panel)
    for (size_t b = 0; b < blocks.count; ++b) {
      const Block block = block_at(blocks, b);
      words_for<F>(block.end - block.begin)(
          static_cast<const uint8_t*>(a.weights) + panel * size, a.columns,
          static_cast<const int32_t*>(a.x) + block.begin * token, a.y + block.begin * a.stride + panel * kPanel,
          a.stride, smaller(kPanel, a.rows - panel * kPanel), a.accumulate);
    }
}

// kTileRuns runs of a pair of panels, taken apart: what codes stand for, and 16 scales (and minima) per span. With the
// activations of kWordsTogether tokens it stays in L1, and results are added to memory half as often as with kDepth.
constexpr size_t kTileRuns = 8;
struct WordTile {
  int32_t words[kTileRuns * kRun / 2][2][kPanel];
  float scales[2 * kTileRuns][2][kPanel], minima[kTileRuns][2][kPanel];
};
static_assert(sizeof(WordTile) <= kTileFloats * sizeof(float), "a tile is in the scratch");

template <Format F>
void take_apart(const uint8_t* panel, size_t first, size_t count, size_t which, WordTile& tile) {
  using C = Codes<F>;
  constexpr size_t runs = block_of(F).columns / kRun, spans = kRun / C::span;
  for (size_t run = first; run < first + count; ++run) {
    const C code(codes_block<F>(panel, run / runs));
    for (size_t s = 0; s < spans; ++s) {
      const size_t from = run % runs * spans + s, to = (run - first) * spans + s;
      V scale[kVectors];
      code.scale(from, scale);
      for (int i = 0; i < kVectors; ++i) Simd::store(tile.scales[to][which] + i * Simd::lanes, scale[i]);
      code.pairs(from, [&](int p, int i, I w) HELM_LAMBDA {
        const I level = C::offset == 0 ? w : Simd::sub_words(w, Simd::every_word(C::offset));
        Simd::store_words(tile.words[to * C::span / 2 + p][which] + i * Simd::lanes, level);
      });
    }
    if constexpr (C::minima) {
      V low[kVectors];
      code.minimum(run % runs, low);
      for (int i = 0; i < kVectors; ++i) Simd::store(tile.minima[run - first][which] + i * Simd::lanes, low[i]);
    }
  }
}

// P panels of a tile times T tokens over `count` runs.
template <class C, int P, int T>
void words_tile(const WordTile& tile, size_t count, const int32_t* x, float* sums, bool accumulate) {
  constexpr int N = P * kVectors, spans = kRun / C::span, pairs = C::span / 2;
  V total[T][N];
  for (auto& token : total)
    for (auto& v : token) v = Simd::zero();
  for (size_t run = 0; run < count; ++run, x += T * kRunWords)
    for (int s = 0; s < spans; ++s) {
      I sum[T][N];
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) sum[t][i] = Simd::every(0);
      const int32_t* words = x + s * pairs * T;
      const int32_t(*codes)[2][kPanel] = tile.words + (run * spans + s) * pairs;
      for (int p = 0; p < pairs; ++p) {
        I w[N];
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) w[i] = Simd::words(codes[p][0] + i * Simd::lanes);
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
          const I factor = Simd::every(words[p * T + t]);
#pragma GCC unroll 16
          for (int i = 0; i < N; ++i) sum[t][i] = Simd::dot(sum[t][i], w[i], factor);
        }
      }
      const float* scale = tile.scales[run * spans + s][0];
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const V factor = Simd::set(float_at(x + 16 * T + t));
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) {
          const V counted = Simd::mul(Simd::floats(sum[t][i]), factor);
          total[t][i] = Simd::fma(counted, Simd::load(scale + i * Simd::lanes), total[t][i]);
        }
      }
      if constexpr (C::minima)
#pragma GCC unroll 16
        for (int t = 0; t < T; ++t) {
          const V factor = Simd::set(float_at(x + 17 * T + t));
#pragma GCC unroll 16
          for (int i = 0; i < N; ++i)
            total[t][i] = Simd::fma(factor, Simd::load(tile.minima[run][0] + i * Simd::lanes), total[t][i]);
        }
    }
  put_rows<T, N>(total, sums, 2 * kPanel, N * Simd::lanes, accumulate);
}

using WordsTile = void (*)(const WordTile&, size_t, const int32_t*, float*, bool);

template <class C, int P, int T = kWordsTogether>
WordsTile tile_for(size_t tokens) {
  if constexpr (T > 1)
    if (tokens != T) return tile_for<C, P, T - 1>(tokens);
  return words_tile<C, P, T>;
}

// Of 16-bit activations.
template <Format F>
struct WordProduct {
  static constexpr Format format = F;
  static constexpr size_t block = kWordsTogether, panels = 2, depth = kTileRuns * kRun;

  static const WordTile& make(const LinearArgs& a, size_t panel, size_t count, size_t k, size_t depth) {
    auto& tile = *reinterpret_cast<WordTile*>(a.scratch);
    for (size_t p = 0; p < count; ++p)
      take_apart<F>(reinterpret_cast<const uint8_t*>(panel_at<F>(a, panel + p, 0)), k / kRun, runs_of(depth), p, tile);
    return tile;
  }
  static const int32_t* input(const LinearArgs& a, Block block, size_t k) {
    return static_cast<const int32_t*>(a.x) + block.begin * words_size(a.columns) +
           k / kRun * (block.end - block.begin) * kRunWords;
  }
  static void multiply(const LinearArgs&, const WordTile& tile, size_t count, size_t depth, const int32_t* x,
                       size_t tokens, float* sums, bool accumulate) {
    const WordsTile run = count == 1 ? tile_for<Codes<F>, 1>(tokens) : tile_for<Codes<F>, 2>(tokens);
    run(tile, runs_of(depth), x, sums, accumulate);
  }
  static size_t runs_of(size_t depth) { return (depth + kRun - 1) / kRun; }
};

template <Format F>
void words_as(const LinearArgs& a) {
  if constexpr (Simd::word_product)
    if (a.tokens > Simd::stream_tokens) return multiply_all<WordProduct<F>>(a);
  words_stream<F>(a);
}

void linear_words(const LinearArgs& a) {
  switch (a.format) {
    case Format::q8_0: return words_as<Format::q8_0>(a);
    case Format::q4_0: return words_as<Format::q4_0>(a);
    case Format::q4_k: return words_as<Format::q4_k>(a);
    case Format::q6_k: return words_as<Format::q6_k>(a);
    case Format::q8: return words_as<Format::q8>(a);
    default: return words_as<Format::q4>(a);
  }
}

}  // namespace
}  // namespace helm
