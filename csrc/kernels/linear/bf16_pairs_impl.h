// Products of many tokens, both factors bf16, for the instruction set whose Simd was included before.
//
// Activations are rounded to bf16 (Kernels::pack_pairs). Lanes of 32 bits hold two neighbouring columns of a row, as
// BF16 units multiply them: a tile is a few panels whose columns have been put in pairs, reused by all tokens from L1
// or L2. Products are exact in f32; an odd last column is paired with zeros.
#pragma once
#include "kernels/linear/pair_columns_impl.h"
#include "kernels/linear/peak_impl.h"
#include "kernels/linear/product_impl.h"

namespace helm {
namespace {

constexpr size_t kPairRows = Simd::product_panels * kPanel;  // of a tile, which meets product_block tokens at a time
constexpr size_t kPairDepth = 256;                           // columns of a tile, which stays in L1
// The most tokens that have such tiles. With more a tile has all columns whose activations are read together, if
// registers have sixteen lanes: a line of it meets 12 tokens, which leaves time to stream it from L2, and sums never
// wait. For fewer it costs more to make than it brings: on a Zen 4 0.86 of the speed with 32 tokens, 1.00 with
// 128, 1.02 with 256.
constexpr size_t kShallowTokens = 159;
constexpr size_t kDeepColumns = Simd::lanes == 16 ? kReach : kPairDepth;

// P panels of a tile times T tokens over `count` pairs of columns.
template <int P, int T>
void pairs_tile(const int32_t* tile, size_t count, const int32_t* x, const Sums& sums) {
  constexpr int N = P * kVectors;
  V total[T][N];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i)
      total[t][i] = sums.accumulate ? Simd::load(sums.at + t * sums.step + i * Simd::lanes) : Simd::zero();
  for (size_t k = 0; k < count; ++k) {
    I w[N];
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) w[i] = Simd::words(tile + k * kPairRows + i * Simd::lanes);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const I factor = Simd::every(x[k * T + t]);
#pragma GCC unroll 16
      for (int i = 0; i < N; ++i) total[t][i] = Simd::dot_pairs(total[t][i], w[i], factor);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) Simd::store(sums.at + t * sums.step + i * Simd::lanes, total[t][i]);
}

using PairsTile = void (*)(const int32_t*, size_t, const int32_t*, const Sums&);

template <int P, int T = Simd::product_block>
PairsTile pairs_for(size_t tokens) {
  if constexpr (T > 1)
    if (tokens != T) return pairs_for<P, T - 1>(tokens);
  return pairs_tile<P, T>;
}

// All of a run of 32 columns as pairs, `step` apart.
template <Format F>
HELM_INLINE void pair_run(const LinearArgs& a, size_t panel, size_t run, size_t step, int32_t* to) {
  RunInPairs<F> pairs(a, panel, run);
#pragma GCC unroll 4
  for (size_t quarter = 0; quarter < RunInPairs<F>::quarters; ++quarter)
    pairs.put(quarter, step, to + quarter * 4 * step);
}

template <Format F, size_t kColumns>
struct PairProduct {
  static constexpr Format format = F;
  static constexpr size_t block = Simd::product_block, panels = Simd::product_panels, depth = kColumns;

  static const int32_t* make(const LinearArgs& a, size_t panel, size_t count, size_t k, size_t depth) {
    auto* tile = reinterpret_cast<int32_t*>(a.scratch);
    for (size_t p = 0; p < count; ++p)
      for (size_t run = 0; run < runs_of(depth); ++run)
        pair_run<F>(a, panel + p, k / kRun + run, kPairRows, tile + p * kPanel + run * kRun / 2 * kPairRows);
    return tile;
  }
  static const int32_t* input(const LinearArgs& a, Block block, size_t k) {
    return static_cast<const int32_t*>(a.x) + block.begin * pairs_of(a.columns) + k / 2 * (block.end - block.begin);
  }
  static void multiply(const LinearArgs&, const int32_t* tile, size_t count, size_t depth, const int32_t* x,
                       size_t tokens, const Sums& sums, LinesAhead& ahead) {
    ahead.ask_for_rest();
    const PairsTile run = count == 1 ? pairs_for<1>(tokens) : pairs_for<panels>(tokens);
    run(tile, pairs_of(depth), x, sums);
  }
};
static_assert(kDeepColumns / 2 * kPairRows <= kTileFloats, "a tile is in the scratch");

void linear_pairs(const LinearArgs& a) {
  with_paired_format(a.format, [&](auto format) {
    a.tokens > kShallowTokens ? multiply_all<PairProduct<format.value, kDeepColumns>>(a)
                              : multiply_all<PairProduct<format.value, kPairDepth>>(a);
  });
}

constexpr size_t kStripPairs = 32;  // pairs of a token that are rounded together

void pack_pairs(const PackArgs& a) {
  const size_t begin = a.begin * kRun / 2, end = smaller(a.end * kRun / 2, pairs_of(a.columns));
  const Blocks blocks = blocks_of(a.tokens, Simd::product_block);
  for (size_t b = 0; b < blocks.count; ++b) {
    const Block block = block_at(blocks, b);
    const size_t width = block.end - block.begin;
    int32_t* target = static_cast<int32_t*>(a.packed) + block.begin * pairs_of(a.columns);
    for (size_t first = begin; first < end; first += kStripPairs)
      for (size_t t = 0; t < width; ++t) {
        const size_t count = smaller(kStripPairs, end - first);
        uint16_t strip[2 * kStripPairs] = {};
        round_strip(a.x + (block.begin + t) * a.stride + 2 * first, smaller(2 * count, a.columns - 2 * first), strip);
        for (size_t pair = 0; pair < count; ++pair) memcpy(target + (first + pair) * width + t, strip + 2 * pair, 4);
      }
  }
}

void peak_pairs(size_t rounds) {
  I half = Simd::every(0x3f003f00);
  touch(half);  // for arm64, GCC 12 would write a constant of bf16 as one of f16
  step_chains(rounds, Simd::zero(), Simd::every(0x3f803f80), half,
              [](V sum, I a, I b) HELM_LAMBDA { return Simd::dot_pairs(sum, a, b); });
}

}  // namespace
}  // namespace helm
