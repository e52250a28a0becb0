// Products of many tokens with bf16 weights by tiles, both factors bf16, for the instruction set whose Simd and Tiles
// were included before.
//
// An instruction multiplies up to 16 tokens with a panel over 32 columns (kRun), and takes as many cycles as there are
// tokens. A block of tokens is halved: two tiles of tokens meet two panels, so that a tile that is loaded is used
// twice. The panels' columns are put in pairs as for other BF16 units; a token's 32 columns are a line, and what is
// missing of them is zero.
#pragma once
#include "kernels/linear/pair_columns_impl.h"
#include "kernels/linear/product_impl.h"
#include "kernels/linear/tile_product_impl.h"

namespace helm {
namespace {

constexpr size_t kTileBlock = 2 * kTileLines;  // tokens
constexpr size_t kTiledPanels = 2, kTiledRows = kTiledPanels * kPanel;
constexpr size_t kTiledDepth = 256;   // columns: two panels, and a block's activations, stay in L1 together
constexpr size_t kTiledReach = 2048;  // columns: activations of a chunk stay in L2; y is touched half as often

// Of both halves of a block's tokens, of which there are two or more, and of two panels.
inline TileConfig config_of(size_t tokens) {
  TileConfig config;
  for (int half = 0; half < 2; ++half) {
    const size_t lines = (tokens + 1 - half) / 2;
    config.set(2 * half, lines, kLine);
    config.set(2 * half + 1, lines, kLine);
    config.set(4 + half, lines, kLine);
    config.set(6 + half, kRun / 2, kLine);
  }
  return config;
}

// How many tokens this thread's tiles are configured for; 0: they are released.
thread_local size_t tiled_tokens = 0;

// Blocks of a product have two sizes at most: configuring takes as long as a few multiplications.
inline void configure_for(size_t tokens) {
  if (tokens != tiled_tokens) Tiles::configure(config_of(tokens));
  tiled_tokens = tokens;
}

inline void release_tiles() {
  Tiles::release();
  tiled_tokens = 0;
}

struct TiledPairs {
  static_assert(kTiledDepth / 2 * kTiledRows <= kTileFloats, "a tile is in the scratch");
  static constexpr Format format = Format::bf16;
  static constexpr size_t block = kTileBlock, panels = kTiledPanels, depth = kTiledDepth;

  // Whole runs: pairs beyond `depth` are zero.
  static const int32_t* make(const LinearArgs& a, size_t panel, size_t count, size_t k, size_t depth) {
    auto* pairs = reinterpret_cast<int32_t*>(a.scratch);
    for (size_t p = 0; p < count; ++p)
      pair_columns(reinterpret_cast<const uint16_t*>(panel_at<format>(a, panel + p, k)), depth, kTiledRows,
                   pairs + p * kPanel);
    for (size_t pair = pairs_of(depth); pair < runs_of(depth) * kRun / 2; ++pair)
      memset(pairs + pair * kTiledRows, 0, kTiledRows * sizeof(int32_t));
    return pairs;
  }
  static const uint16_t* input(const LinearArgs& a, Block block, size_t k) {
    const size_t width = block.end - block.begin;
    return static_cast<const uint16_t*>(a.x) + (block.begin * runs_of(a.columns) + k / kRun * width) * kRun;
  }
  static void multiply(const LinearArgs&, const int32_t* pairs, size_t count, size_t depth, const uint16_t* x,
                       size_t tokens, float* sums, bool accumulate) {
    constexpr size_t line = kTiledPanels * kLine;  // of pairs, and of sums
    const size_t half = (tokens + 1) / 2;
    configure_for(tokens);
    const auto run = count == 1 ? multiply_tiles<2, 1> : multiply_tiles<2, kTiledPanels>;
    run({x, kLine, half * kLine, tokens * kLine}, {pairs, line, kLine, kRun / 2 * line}, runs_of(depth),
        {sums, line, half * line, kLine}, accumulate);
  }
};

void linear_tiles(const LinearArgs& a) {
  multiply_all<TiledPairs, kTiledReach>(a);
  release_tiles();
}

// Each block [runs][width][kRun].
void pack_tiles(const PackArgs& a) {
  const Blocks blocks = blocks_of(a.tokens, kTileBlock);
  for (size_t b = 0; b < blocks.count; ++b) {
    const Block block = block_at(blocks, b);
    const size_t width = block.end - block.begin;
    uint16_t* target = static_cast<uint16_t*>(a.packed) + block.begin * runs_of(a.columns) * kRun;
    for (size_t t = 0; t < width; ++t)
      for (size_t run = a.begin; run < a.end; ++run) {
        const size_t count = smaller(kRun, a.columns - run * kRun);
        uint16_t* line = target + (run * width + t) * kRun;
        round_strip(a.x + (block.begin + t) * a.stride + run * kRun, count, line);
        memset(line + count, 0, (kRun - count) * sizeof(uint16_t));
      }
  }
}

void peak_tiles(size_t rounds) {
  alignas(64) uint16_t ones[kTileLines * kRun];
  for (uint16_t& each : ones) each = 0x3f80;
  configure_for(kTileBlock);
  Tiles::load<4>(ones, kLine);
  Tiles::load<5>(ones, kLine);
  Tiles::load<6>(ones, kLine);
  Tiles::load<7>(ones, kLine);
  for (size_t round = 0; round < rounds; ++round) {
    Tiles::add_pairs<0, 4, 6>();
    Tiles::add_pairs<1, 4, 7>();
    Tiles::add_pairs<2, 5, 6>();
    Tiles::add_pairs<3, 5, 7>();
  }
  release_tiles();
}

constexpr Peak kPeakTiles = {kTileBlock * kTiledRows * kRun, peak_tiles};

}  // namespace
}  // namespace helm
