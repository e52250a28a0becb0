// Products of many tokens with quantised weights, multiplied as whole numbers, for the instruction set whose Simd was
// included before.
//
// A tile is a few panels of which some columns have been taken apart, reused by all tokens from L1: lanes of 32 bits
// hold neighbouring columns of a row, two of 16 bits (WordLanes) or four of 8 bits (ByteLanes), whose products with as
// many activations are added in one step. Sums over a span of columns under one scale are exact.
//
// Lanes say what a register holds. `columns` of a row are side by side in it, and sums of `tokens` share one;
// `registers` hold those of a panel. each(code, s, use) calls use(p, i, w) with step p of span s in register i, a step
// being `columns` of all rows. put_rows_of(rows, to): a number per row to the lanes of its sums. Of the tokens from
// g * `tokens` on are start: sums before the first product; factor: the activations of a step; value: what is kept with
// a run in f32. `bias` is what activations have above what they stand for: it is taken off the sums of every row before
// the first product; what codes were `lowered` by is added to the minima of groups. put(total, sums): sums of T
// tokens with the rows of P panels.
#pragma once
#include "kernels/linear/product_impl.h"
#include "kernels/linear/words_impl.h"

namespace helm {
namespace {

constexpr int kTilePanels = Simd::product_panels;
constexpr size_t kTileRuns = 8;  // runs of 32 columns: with the activations of kTogether tokens a tile stays in L1

// A register has one token's sums with neighbouring rows.
struct TokenLanes {
  static constexpr int tokens = 1, registers = kVectors, bias = 0;
  template <Format>
  static constexpr int lowered = 0;

  HELM_INLINE static void put_rows_of(const V* rows, float* to) {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) Simd::store(to + i * Simd::lanes, rows[i]);
  }
  HELM_INLINE static I factor(const int32_t* x, int width, int step, int g) { return Simd::every(x[step * width + g]); }
  HELM_INLINE static V value(const int32_t* x, int g) { return Simd::set(float_at(x + g)); }
  template <int P, int T>
  HELM_INLINE static void put(const V (*total)[P * kVectors], const Sums& sums) {
    put_rows<T, P * kVectors>(total, sums.at, sums.step, P * kPanel, sums.accumulate);
  }
};

// Two columns in a lane. Activations: as pack_words leaves them.
struct WordLanes : TokenLanes {
  static constexpr size_t columns = 2, run_size = kRunWords, scale_at = 16;

  template <Format F, class Use>
  HELM_INLINE static void each(const Codes<F>& code, size_t s, const Use& use) {
    code.pairs(s, [&](size_t p, int i, I w) HELM_LAMBDA {
      use(p, i, Codes<F>::offset == 0 ? w : Simd::sub_words(w, Simd::every_word(Codes<F>::offset)));
    });
  }
  template <Format F>
  HELM_INLINE static I start(const int32_t*, size_t, size_t, int) {
    return Simd::every(0);
  }
  HELM_INLINE static I dot(I sum, I codes, I x) { return Simd::dot_in_loop(sum, codes, x); }
  HELM_INLINE static I whole(I sum) { return sum; }
};

// What is taken off a code so that it is a byte as products take it: where these are signed, what it has above what it
// stands for; of q8, half of its range, which the minima of groups make up for.
template <Format F>
constexpr int kByteShift = !Simd::codes_signed ? 0
                           : F == Format::q8   ? 128
                                               : static_cast<int>(Codes<F>::offset);

// Where the sums of a span's activations are, as put_byte_sums leaves them.
template <Format F>
constexpr size_t kCountsAt = Codes<F>::span == kRun ? 12 : 10;

// Four columns in a lane, in the order 0, 2, 1, 3. Activations: as pack_bytes leaves them.
struct ByteLanes : TokenLanes {
  static constexpr int bias = Simd::byte_bias;
  template <Format F>
  static constexpr int lowered = kByteShift<F> - static_cast<int>(Codes<F>::offset);
  static constexpr size_t columns = 4, scale_at = 8;
  static constexpr size_t run_size = Simd::codes_signed ? kSignedRunBytes : kRunBytes;

  template <Format F, class Use>
  HELM_INLINE static void each(const Codes<F>& code, size_t s, const Use& use) {
    I even[kVectors];
    code.pairs(s, [&](size_t p, int i, I w) HELM_LAMBDA {
      const I byte = kByteShift<F> == 0 ? w : Simd::sub_words(w, Simd::every_word(kByteShift<F>));
      if (p % 2 == 0)
        even[i] = Simd::both(byte, Simd::every_word(255));
      else
        use(p / 2, i, Simd::either(even[i], Simd::template up<8>(byte)));
    });
  }
  template <Format F, class S = Simd>
  HELM_INLINE static I start(const int32_t* x, size_t width, size_t s, int g) {
    if constexpr (S::codes_signed || Codes<F>::offset == 0)
      return S::every(0);
    else
      return S::start_bytes(-static_cast<int>(Codes<F>::offset), S::every(x[(kCountsAt<F> + s) * width + g]));
  }
  HELM_INLINE static I dot(I sum, I codes, I x) { return Simd::dot_bytes(sum, codes, x); }
  HELM_INLINE static I whole(I sum) { return Simd::whole_bytes(sum); }
};

template <class L>
struct CodeTile {
  static constexpr size_t width = L::registers * Simd::lanes;
  int32_t lanes[kTileRuns * kRun / L::columns][kTilePanels][width], starts[2 * kTileRuns][kTilePanels][width];
  float scales[2 * kTileRuns][kTilePanels][width], minima[kTileRuns][kTilePanels][width];
};

template <Format F, class L>
void take_apart(const uint8_t* panel, size_t first, size_t count, size_t which, CodeTile<L>& tile) {
  using C = Codes<F>;
  constexpr size_t runs = facts_of(F).columns / kRun, spans = kRun / C::span;
  for (size_t run = first; run < first + count; ++run) {
    const C code(codes_block<F>(panel, run / runs));
    for (size_t s = 0; s < spans; ++s) {
      const size_t from = run % runs * spans + s, to = (run - first) * spans + s;
      V scale[kVectors];
      code.scale(from, scale);
      L::put_rows_of(scale, tile.scales[to][which]);
      I counts[L::registers];
      for (I& each : counts) each = Simd::every(0);
      L::template each<F>(code, from, [&](size_t p, int i, I w) HELM_LAMBDA {
        Simd::store_words(tile.lanes[to * C::span / L::columns + p][which] + i * Simd::lanes, w);
        if constexpr (L::bias != 0)
          counts[i] = L::dot(counts[i], w, Simd::every(static_cast<int32_t>(0x01010101u * L::bias)));
      });
      if constexpr (L::bias != 0)
        for (int i = 0; i < L::registers; ++i)
          Simd::store_words(tile.starts[to][which] + i * Simd::lanes, Simd::sub_counts(Simd::every(0), counts[i]));
      if constexpr (C::minima) {
        V low[kVectors];
        code.minimum(run % runs, low);
        if constexpr (L::template lowered<F> != 0)
          for (int i = 0; i < kVectors; ++i) low[i] = Simd::fma(scale[i], Simd::set(L::template lowered<F>), low[i]);
        L::put_rows_of(low, tile.minima[run - first][which]);
      }
    }
  }
}

// Adds a step's products to all sums. Of weights and activations the fewer are in registers together, the others in
// turn.
template <class L, int G, int N, class Factor, class Weights>
HELM_INLINE void add_step(const Factor& factor, const Weights& weights, I (*sum)[N]) {
  if constexpr (L::tokens == 1) {
    I w[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) w[i] = weights(i);
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) {
      const I x = factor(g);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) sum[g][i] = L::dot(sum[g][i], w[i], x);
    }
  } else {
    I x[G];
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) x[g] = factor(g);
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      const I w = weights(i);
#pragma GCC unroll 16
      for (int g = 0; g < G; ++g) sum[g][i] = L::dot(sum[g][i], w, x[g]);
    }
  }
}

// P panels of a tile times T tokens over `count` runs.
template <Format F, class L, int P, int T>
void codes_tile(const CodeTile<L>& tile, size_t count, const int32_t* x, const Sums& sums, LinesAhead& ahead) {
  using C = Codes<F>;
  constexpr int N = P * L::registers, G = (T + L::tokens - 1) / L::tokens;
  constexpr int spans = kRun / C::span, steps = C::span / L::columns;
  V total[G][N];
  for (auto& token : total)
    for (auto& v : token) v = Simd::zero();
  for (size_t run = 0; run < count; ++run, x += T * L::run_size) {
    ahead.ask();
    for (int s = 0; s < spans; ++s) {
      I sum[G][N];
#pragma GCC unroll 16
      for (int g = 0; g < G; ++g) {
        const I start = L::template start<F>(x, T, s, g);
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i)
          sum[g][i] = L::bias == 0 ? start : Simd::words(tile.starts[run * spans + s][0] + i * Simd::lanes);
      }
      const auto* lanes = tile.lanes + (run * spans + s) * steps;
#pragma GCC unroll 1
      for (int p = 0; p < steps; ++p) {
        const auto factor = [&](int g) HELM_LAMBDA { return L::factor(x, T, s * steps + p, g); };
        const auto weights = [&](int i) HELM_LAMBDA { return Simd::words(lanes[p][0] + i * Simd::lanes); };
        add_step<L, G, N>(factor, weights, sum);
      }
      const float* scale = tile.scales[run * spans + s][0];
#pragma GCC unroll 16
      for (int g = 0; g < G; ++g) {
        const V factor = L::value(x + L::scale_at * T, g);
#pragma GCC unroll 16
        for (int i = 0; i < N; ++i) {
          const V counted = Simd::mul(Simd::floats(L::whole(sum[g][i])), factor);
          total[g][i] = Simd::fma(counted, Simd::load(scale + i * Simd::lanes), total[g][i]);
        }
      }
      if constexpr (C::minima)
#pragma GCC unroll 16
        for (int g = 0; g < G; ++g) {
          const V factor = L::value(x + (L::scale_at + 1) * T, g);
#pragma GCC unroll 16
          for (int i = 0; i < N; ++i)
            total[g][i] = Simd::fma(factor, Simd::load(tile.minima[run][0] + i * Simd::lanes), total[g][i]);
        }
    }
  }
  L::template put<P, T>(total, sums);
}

template <class L>
using TileProduct = void (*)(const CodeTile<L>&, size_t, const int32_t*, const Sums&, LinesAhead&);

template <Format F, class L, int P, int T = kTogether>
TileProduct<L> tile_for(size_t tokens) {
  if constexpr (T > 1)
    if (tokens != T) return tile_for<F, L, P, T - 1>(tokens);
  return codes_tile<F, L, P, T>;
}

template <Format F, class L>
struct CodeProduct {
  static_assert(sizeof(CodeTile<L>) <= kTileFloats * sizeof(float), "a tile is in the scratch");
  static constexpr Format format = F;
  static constexpr size_t block = kTogether, panels = kTilePanels, depth = kTileRuns * kRun;

  static const CodeTile<L>& make(const LinearArgs& a, size_t panel, size_t count, size_t k, size_t depth) {
    auto& tile = *reinterpret_cast<CodeTile<L>*>(a.scratch);
    for (size_t p = 0; p < count; ++p)
      take_apart<F>(reinterpret_cast<const uint8_t*>(panel_at<F>(a, panel + p, 0)), k / kRun, runs_of(depth), p, tile);
    return tile;
  }
  static const int32_t* input(const LinearArgs& a, Block block, size_t k) {
    return static_cast<const int32_t*>(a.x) +
           (block.begin * runs_of(a.columns) + k / kRun * (block.end - block.begin)) * L::run_size;
  }
  static void multiply(const LinearArgs&, const CodeTile<L>& tile, size_t count, size_t depth, const int32_t* x,
                       size_t tokens, const Sums& sums, LinesAhead& ahead) {
    const TileProduct<L> run = count == 1 ? tile_for<F, L, 1>(tokens) : tile_for<F, L, kTilePanels>(tokens);
    run(tile, runs_of(depth), x, sums, ahead);
  }
};

template <Format F>
void words_as(const LinearArgs& a) {
  if constexpr (Simd::word_product)
    if (a.tokens > Simd::code_stream_tokens) return multiply_all<CodeProduct<F, WordLanes>>(a);
  words_stream<F>(a);
}

void linear_words(const LinearArgs& a) {
  with_code_format(a.format, [&](auto format) { words_as<format.value>(a); });
}

// Columns 4q to 4q + 3 in the order 0, 2, 1, 3, `bias` above what they are.
inline int32_t quad_of(const Run& run, size_t q) {
  constexpr uint32_t low = 0x00ff00ff, bias = 0x01010101u * Simd::byte_bias;
  uint32_t pairs[2];
  memcpy(pairs, run.whole + 4 * q, sizeof(pairs));
  return static_cast<int32_t>(((pairs[0] & low) | (pairs[1] & low) << 8) ^ bias);
}

// What follows 32 numbers of 8 bits: scale, scale times sum, and where codes are not signed, of the first half, of the
// second and of both the sums of even columns and of odd ones, which meet either pair of a quad, as 16-bit numbers.
inline void put_byte_sums(const Run& run, size_t width, int32_t* to) {
  put_scale(run, width, to + 8 * width);
  if (Simd::codes_signed) return;
  int16_t counts[3][2];
  for (int odd = 0; odd < 2; ++odd) {
    int sums[2] = {};
    for (size_t c = 0; c < kRun / 4; ++c) {
      sums[0] += run.whole[2 * c + odd];
      sums[1] += run.whole[kRun / 2 + 2 * c + odd];
    }
    counts[0][odd] = static_cast<int16_t>(sums[0]);
    counts[1][odd] = static_cast<int16_t>(sums[1]);
    counts[2][odd] = static_cast<int16_t>(sums[0] + sums[1]);
  }
  for (size_t part = 0; part < 3; ++part) memcpy(to + (10 + part) * width, counts[part], 4);
}

// Eight quads, and their sums.
inline void put_bytes(const Run& run, size_t width, size_t token, int32_t* to) {
  for (size_t q = 0; q < kRun / 4; ++q) to[q * width + token] = quad_of(run, q);
  put_byte_sums(run, width, to + token);
}

void pack_bytes(const PackArgs& a) { pack_runs(a, kTogether, ByteLanes::run_size, kByteMost, put_bytes); }

template <Format F>
void bytes_as(const LinearArgs& a) {
  if constexpr (facts_of(F).largest_code <= Simd::byte_most) multiply_all<CodeProduct<F, ByteLanes>>(a);
}

void linear_bytes(const LinearArgs& a) {
  with_code_format(a.format, [&](auto format) { bytes_as<format.value>(a); });
}

}  // namespace
}  // namespace helm
