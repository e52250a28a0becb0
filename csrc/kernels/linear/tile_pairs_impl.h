// Products of many tokens by tiles, both factors bf16, for the instruction set whose Simd and Tiles were included
// before.
//
// An instruction multiplies up to 16 tokens with a panel over 32 columns (kRun), and takes as many cycles as there are
// tokens. A block of tokens is halved: two tiles of tokens meet two panels, so that a tile that is loaded is used
// twice. The panels' columns are put in pairs as for other BF16 units; a token's 32 columns are a line, and what is
// missing of them is zero. Weights are put in pairs, and prefetched, between multiplications, which leave
// the processor's other units idle: while a piece of them is multiplied, the next is made.
#pragma once
#include "kernels/linear/pair_columns_impl.h"
#include "kernels/linear/product_impl.h"
#include "kernels/linear/tile_product_impl.h"

namespace helm {
namespace {

constexpr size_t kTileBlock = 2 * kTileLines;  // tokens
constexpr size_t kTiledPanels = 2;
constexpr size_t kTiledDepth = 256;   // columns of a piece: two panels of it stay in L1
constexpr size_t kTiledReach = 2048;  // columns whose activations of a chunk stay in L2; y is touched once for each
constexpr size_t kTiledChunk = 256;   // tokens
constexpr size_t kTileWords = kTileLines * kPanel;  // of a tile of sums, and of a run of a panel in pairs
constexpr size_t kPanelWords = kTiledDepth / kRun * kTileWords, kPieceWords = kTiledPanels * kPanelWords;
static_assert(2 * kPieceWords <= kTileFloats, "two pieces are in the scratch");
static_assert(kTiledChunk * kTiledPanels * kPanel <= kLinearScratch - kTileFloats, "and sums are beside them");

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

// Columns [begin, begin + depth) of one or two panels.
struct TiledPiece {
  size_t panel, panels, begin, depth;

  size_t runs() const { return runs_of(depth); }
};

inline TiledPiece piece_at(const LinearArgs& a, size_t panel, size_t begin) {
  const size_t reach_end = smaller(begin / kTiledReach * kTiledReach + kTiledReach, a.columns);
  return {panel, smaller(kTiledPanels, a.last_panel - panel), begin, smaller(kTiledDepth, reach_end - begin)};
}

// The piece that is multiplied next: of the same panels within a reach, then of the next ones, then of the next reach,
// and so on from the first one, for the next chunk of tokens.
inline TiledPiece piece_after(const LinearArgs& a, const TiledPiece& piece) {
  const size_t reach = piece.begin / kTiledReach * kTiledReach, reach_end = smaller(reach + kTiledReach, a.columns);
  if (piece.begin + piece.depth < reach_end) return piece_at(a, piece.panel, piece.begin + piece.depth);
  if (piece.panel + piece.panels < a.last_panel) return piece_at(a, piece.panel + piece.panels, reach);
  return piece_at(a, a.first_panel, reach_end < a.columns ? reach_end : 0);
}

// Puts the columns of the next piece in pairs, run by run, and prefetches the piece after it.
template <Format F>
class NextPiece {
 public:
  // `last`: no piece follows, so that none is made.
  NextPiece(const LinearArgs& a, const TiledPiece& piece, int32_t* to, bool last)
      : a_(a), piece_(piece), after_(piece_after(a, piece)), to_(to), parts_(last ? 0 : piece.panels * piece.runs()) {}

  // As many runs as are due with one of `steps` steps.
  HELM_INLINE void advance(size_t steps) {
    for (due_ += parts_; due_ >= steps; due_ -= steps) make();
  }
  void finish() {
    while (made_ < parts_) make();
  }

 private:
  HELM_INLINE void make() {
    const size_t which = made_ % piece_.panels, run = made_ / piece_.panels;
    if (which < after_.panels && run < after_.runs())
      prefetch_panels<F, 1>(a_, after_.panel + which, after_.begin, after_.depth, run, after_.runs());
    pair_run<F>(a_, piece_.panel + which, piece_.begin / kRun + run, kPanel,
                to_ + which * kPanelWords + run * kTileWords);
    ++made_;
  }

  const LinearArgs& a_;
  const TiledPiece piece_, after_;
  int32_t* to_;
  size_t parts_, made_ = 0, due_ = 0;
};

// A chunk of tokens: of blocks [begin, end), and their sums with two panels, by block, half of it, and panel.
struct TiledChunk {
  const Blocks& blocks;
  Block range;
  float* sums;

  size_t size() const { return range.end - range.begin; }
  float* sums_of(size_t block) const { return sums + (block - range.begin) * 2 * kTiledPanels * kTileWords; }
};

template <int N, Format F>
void multiply_piece(const LinearArgs& a, const TiledChunk& chunk, const TiledPiece& piece, const int32_t* pairs,
                    NextPiece<F>& next) {
  constexpr size_t tile = kTileWords * sizeof(float);
  const size_t runs = piece.runs(), steps = chunk.size() * runs;
  for (size_t b = chunk.range.begin; b < chunk.range.end; ++b) {
    const Block block = block_at(chunk.blocks, b);
    const size_t width = block.end - block.begin, half = (width + 1) / 2;
    const auto* x =
        static_cast<const uint16_t*>(a.x) + (block.begin * runs_of(a.columns) + piece.begin / kRun * width) * kRun;
    configure_for(width);
    multiply_tiles_beside<2, N>({x, kLine, half * kLine, width * kLine},
                                {pairs, kLine, kPanelWords * sizeof(int32_t), tile}, runs,
                                {chunk.sums_of(b), kLine, kTiledPanels * tile, tile}, piece.begin % kTiledReach > 0,
                                [&]() HELM_LAMBDA { next.advance(steps); });
  }
}

// A chunk's sums with a piece's panels to y.
inline void put_chunk(const LinearArgs& a, const TiledChunk& chunk, const TiledPiece& piece) {
  const bool accumulate = a.accumulate || piece.begin >= kTiledReach;
  for (size_t b = chunk.range.begin; b < chunk.range.end; ++b) {
    const Block block = block_at(chunk.blocks, b);
    const size_t half = (block.end - block.begin + 1) / 2;
    for (size_t t = block.begin; t < block.end; ++t) {
      const size_t in_block = t - block.begin, second = in_block >= half;
      const float* sums = chunk.sums_of(b) + second * kTiledPanels * kTileWords + (in_block - second * half) * kPanel;
      for (size_t p = 0; p < piece.panels; ++p) {
        const size_t row = (piece.panel + p) * kPanel;
        put_row(sums + p * kTileWords, smaller(kPanel, a.rows - row), a.y + t * a.stride + row, accumulate);
      }
    }
  }
}

template <Format F>
void tiles_as(const LinearArgs& a) {
  auto* pairs = reinterpret_cast<int32_t*>(a.scratch);
  const Blocks blocks = blocks_of(a.tokens, kTileBlock), chunks = blocks_of(blocks.count, kTiledChunk / kTileBlock);
  TiledPiece piece = piece_at(a, a.first_panel, 0);
  NextPiece<F>(a, piece, pairs, false).finish();
  for (size_t c = 0, made = 0; c < chunks.count;) {
    const TiledChunk chunk = {blocks, block_at(chunks, c), a.scratch + kTileFloats};
    const TiledPiece after = piece_after(a, piece);
    const bool ends = after.panel != piece.panel || after.begin != piece.begin + piece.depth ||
                      after.begin % kTiledReach == 0;  // then sums go to y
    const bool chunk_ends = after.panel == a.first_panel && after.begin == 0;
    NextPiece<F> next(a, after, pairs + (made + 1) % 2 * kPieceWords, chunk_ends && c + 1 == chunks.count);
    const auto run = piece.panels == 1 ? multiply_piece<1, F> : multiply_piece<kTiledPanels, F>;
    run(a, chunk, piece, pairs + made % 2 * kPieceWords, next);
    next.finish();
    if (ends) put_chunk(a, chunk, piece);
    piece = after;
    ++made;
    c += chunk_ends;
  }
}

void linear_tiles(const LinearArgs& a) {
  if (a.first_panel == a.last_panel) return;
  with_paired_format(a.format, [&](auto format) { tiles_as<format.value>(a); });
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

constexpr Peak kPeakTiles = {kTileBlock * kTiledPanels * kPanel * kRun, peak_tiles};

}  // namespace
}  // namespace helm
