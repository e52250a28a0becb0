// Products of many tokens by tiles, both factors bf16, for the instruction set whose Simd and Tiles were included
// before.
//
// An instruction multiplies up to 16 tokens with a panel over 32 columns (kRun), and takes as many cycles as there are
// tokens. A block of tokens is halved: two tiles of tokens meet two panels, so that a tile that is loaded is used
// twice. The panels' columns are put in pairs as for other BF16 units; a token's 32 columns are a line, and what is
// missing of them, or of a block's tokens, is zero. A piece of two panels stays in L1 while a chunk of tokens passes
// from L2. What else there is to do is done between multiplications, a little at a time, because the processor looks
// only a few of them ahead: the next piece is put in pairs, the one after it prefetched, and sums that are complete are
// written to y.
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
constexpr size_t kBlockWords = 2 * kTiledPanels * kTileWords;  // of a block's sums with a piece's panels
constexpr size_t kChunkWords = kTiledChunk / kTileBlock * kBlockWords;
static_assert(2 * kPieceWords <= kTileFloats, "two pieces are in the scratch");
static_assert(2 * kChunkWords <= kSumFloats, "and the sums of two chunks are beside them");

// Blocks of tokens, all of one even width. The last one may lack tokens at its end: zeros are in their place.
struct TiledBlocks {
  size_t count, width;

  explicit TiledBlocks(size_t tokens)
      : count((tokens + kTileBlock - 1) / kTileBlock), width(round_up((tokens + count - 1) / count, 2)) {}
  size_t half() const { return width / 2; }
};

// Of either half of a block's tokens, and of two panels.
inline TileConfig config_of(const TiledBlocks& blocks) {
  TileConfig config;
  for (int tile = 0; tile < 6; ++tile) config.set(tile, blocks.half(), kLine);
  for (int tile = 6; tile < 8; ++tile) config.set(tile, kRun / 2, kLine);
  return config;
}

// Spreads the parts of a job evenly over a number of steps.
class Paced {
 public:
  explicit Paced(size_t parts) : parts_(parts) {}

  // What is due with one of `steps` steps: part(index) for each.
  template <class Part>
  HELM_INLINE void advance(size_t steps, const Part& part) {
    for (due_ += parts_; due_ >= steps; due_ -= steps) part(made_++);
  }
  template <class Part>
  void finish(const Part& part) {
    while (made_ < parts_) part(made_++);
  }

 private:
  size_t parts_, made_ = 0, due_ = 0;
};

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

// Puts the columns of the next piece in pairs, a quarter of a run at a time, and prefetches the piece after it where
// weights are plain: quantised ones ask for their next lines themselves.
template <Format F>
class NextPiece {
 public:
  // `last`: no piece follows, so that none is made.
  NextPiece(const LinearArgs& a, const TiledPiece& piece, int32_t* to, bool last)
      : a_(a),
        piece_(piece),
        after_(piece_after(a, piece)),
        to_(to),
        quarters_(last ? 0 : piece.panels * piece.runs() * kQuarters) {}

  // What is due with one of `steps` steps.
  HELM_INLINE void advance(size_t steps) {
    quarters_.advance(steps, [&](size_t index) HELM_LAMBDA { make(index); });
  }
  void finish() {
    quarters_.finish([&](size_t index) HELM_LAMBDA { make(index); });
  }

 private:
  static constexpr size_t kQuarters = RunInPairs<F>::quarters;

  HELM_INLINE void make(size_t index) {
    const size_t quarter = index % kQuarters, panel = index / kQuarters % piece_.panels;
    const size_t run = index / kQuarters / piece_.panels;
    if (quarter == 0) columns_ = RunInPairs<F>(a_, piece_.panel + panel, piece_.begin / kRun + run);
    if (!quantised(F) && panel < after_.panels && run < after_.runs())
      lines_ahead<F>(a_, after_.panel + panel, 1, after_.begin, after_.depth, run * kQuarters + quarter,
                     after_.runs() * kQuarters, 1)
          .ask_for_rest();
    columns_.put(quarter, kPanel, to_ + panel * kPanelWords + run * kTileWords + quarter * kTileWords / kQuarters);
  }

  const LinearArgs& a_;
  const TiledPiece piece_, after_;
  int32_t* to_;
  Paced quarters_;
  RunInPairs<F> columns_;
};

// Blocks [begin, end) of tokens, and the sums of all of them with two panels.
struct TiledChunk {
  const TiledBlocks& blocks;
  Block range;
  float* sums;

  size_t size() const { return range.end - range.begin; }
  size_t first_token() const { return range.begin * blocks.width; }
  float* sums_of(size_t block) const { return sums + (block - range.begin) * kBlockWords; }
};

// Writes the complete sums of a chunk with a piece's panels to y, token by token.
class SumsToY {
 public:
  SumsToY() = default;
  SumsToY(const LinearArgs& a, const TiledChunk& chunk, const TiledPiece& piece)
      : y_(a.y + chunk.first_token() * a.stride + piece.panel * kPanel),
        sums_(chunk.sums),
        stride_(a.stride),
        rows_(smaller(piece.panels * kPanel, a.rows - piece.panel * kPanel)),
        half_(chunk.blocks.half()),
        accumulate_(a.accumulate || piece.begin >= kTiledReach),
        tokens_(smaller(chunk.size() * chunk.blocks.width, a.tokens - chunk.first_token())) {}

  // As many tokens as are due with one of `steps` steps.
  HELM_INLINE void advance(size_t steps) {
    tokens_.advance(steps, [&](size_t) HELM_LAMBDA { put_token(); });
  }
  void finish() {
    tokens_.finish([&](size_t) HELM_LAMBDA { put_token(); });
  }

 private:
  HELM_INLINE void put_token() {
    put_row(sums_, smaller(kPanel, rows_), y_, accumulate_);
    if (rows_ > kPanel) put_row(sums_ + kTileWords, rows_ - kPanel, y_ + kPanel, accumulate_);
    y_ += stride_;
    sums_ += kPanel;
    if (++in_half_ < half_) return;
    in_half_ = 0;
    sums_ += kTiledPanels * kTileWords - half_ * kPanel;
  }

  float* y_ = nullptr;
  const float* sums_ = nullptr;
  size_t stride_ = 0, rows_ = 0, half_ = 0, in_half_ = 0;
  bool accumulate_ = false;
  Paced tokens_{0};
};

// Multiplies a chunk by a piece. Meanwhile `next` is put in pairs, and the sums in `before` go to y, evenly over
// `before_steps` steps.
template <int N, Format F>
void multiply_piece(const LinearArgs& a, const TiledChunk& chunk, const TiledPiece& piece, const int32_t* pairs,
                    NextPiece<F>& next, SumsToY& before, size_t before_steps) {
  constexpr size_t tile = kTileWords * sizeof(float);
  const TiledBlocks& blocks = chunk.blocks;
  const size_t runs = piece.runs(), steps = chunk.size() * runs, half = blocks.half() * kLine;
  HeldSums<2, N, LoadPassing> held;
  for (size_t b = chunk.range.begin; b < chunk.range.end; ++b) {
    const auto* x =
        static_cast<const uint16_t*>(a.x) + (b * runs_of(a.columns) + piece.begin / kRun) * blocks.width * kRun;
    held.multiply({x, kLine, half, 2 * half}, {pairs, kLine, kPanelWords * sizeof(int32_t), tile}, runs,
                  {chunk.sums_of(b), kLine, kTiledPanels * tile, tile}, piece.begin % kTiledReach > 0,
                  [&]() HELM_LAMBDA {
                    next.advance(steps);
                    before.advance(before_steps);
                  });
  }
  held.store();
}

template <Format F>
void tiles_as(const LinearArgs& a) {
  auto* pairs = reinterpret_cast<int32_t*>(a.scratch);
  const TiledBlocks blocks(a.tokens);
  const Blocks chunks = blocks_of(blocks.count, kTiledChunk / kTileBlock);
  TiledPiece piece = piece_at(a, a.first_panel, 0);
  NextPiece<F>(a, piece, pairs, false).finish();
  Tiles::configure(config_of(blocks));
  SumsToY complete;
  for (size_t c = 0, made = 0, completed = 0; c < chunks.count;) {
    const TiledChunk chunk = {blocks, block_at(chunks, c), a.scratch + kTileFloats + completed % 2 * kChunkWords};
    const TiledPiece after = piece_after(a, piece);
    const bool complete_now =
        after.panel != piece.panel || after.begin != piece.begin + piece.depth || after.begin % kTiledReach == 0;
    const bool chunk_ends = after.panel == a.first_panel && after.begin == 0;
    const size_t reach = piece.begin / kTiledReach * kTiledReach;
    NextPiece<F> next(a, after, pairs + (made + 1) % 2 * kPieceWords, chunk_ends && c + 1 == chunks.count);
    const auto run = piece.panels == 1 ? multiply_piece<1, F> : multiply_piece<kTiledPanels, F>;
    run(a, chunk, piece, pairs + made % 2 * kPieceWords, next, complete,
        chunk.size() * runs_of(smaller(kTiledReach, a.columns - reach)));
    next.finish();
    if (complete_now) {
      complete.finish();
      complete = SumsToY(a, chunk, piece);
      ++completed;
    }
    piece = after;
    ++made;
    c += chunk_ends;
  }
  Tiles::release();
  complete.finish();
}

void linear_tiles(const LinearArgs& a) {
  if (a.first_panel == a.last_panel) return;
  with_paired_format(a.format, [&](auto format) { tiles_as<format.value>(a); });
}

// Each block [runs][width][kRun].
void pack_tiles(const PackArgs& a) {
  const TiledBlocks blocks(a.tokens);
  for (size_t token = 0; token < blocks.count * blocks.width; ++token) {
    const size_t block = token / blocks.width, t = token % blocks.width;
    uint16_t* target = static_cast<uint16_t*>(a.packed) + block * blocks.width * runs_of(a.columns) * kRun;
    for (size_t run = a.begin; run < a.end; ++run) {
      const size_t count = token < a.tokens ? smaller(kRun, a.columns - run * kRun) : 0;
      uint16_t* line = target + (run * blocks.width + t) * kRun;
      if (count > 0) round_strip(a.x + token * a.stride + run * kRun, count, line);
      memset(line + count, 0, (kRun - count) * sizeof(uint16_t));
    }
  }
}

void peak_tiles(size_t rounds) {
  alignas(64) uint16_t ones[kTileLines * kRun];
  for (uint16_t& each : ones) each = 0x3f80;
  Tiles::configure(config_of(TiledBlocks(kTileBlock)));
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
  Tiles::release();
}

constexpr Peak kPeakTiles = {kTileBlock * kTiledPanels * kPanel * kRun, peak_tiles};

}  // namespace
}  // namespace helm
