// The loops of a product of many tokens, whatever its activations are, for the instruction set whose Simd was included
// before.
//
// Of a few panels, some columns at a time are brought into a tile that stays in L1 or L2 while a chunk of tokens
// passes. Sums over a reach of columns lie beside the tile and are added to y once, by each block of tokens when it is
// done, so that the next one is multiplied while memory takes them. Where one tile has all columns of the first reach,
// and nothing is added to, they go to y at once: the same numbers. Rows of y are often powers of two apart and share
// few sets of a cache: reading them for every tile took a third of the speed at 1024 tokens.
#pragma once
#include "kernels/linear/codes_impl.h"

namespace helm {
namespace {

constexpr size_t kReach =
    1024;  // columns of f32 activations whose chunk stays in L2: a multiple of every format's block

constexpr size_t kChunk = 528;  // tokens whose sums with two panels wait beside a tile: fewer make tiles more often

// A chunk of tokens times a reach of columns of a few panels.
struct Piece {
  size_t panel, panels;  // the first, and how many
  size_t begin, end;     // columns
  Block chunk;           // of blocks of tokens
};

// Where sums of a block's tokens with a tile go, a token's `step` after the other's, and whether they are added there.
struct Sums {
  float* at;
  size_t step;
  bool accumulate;
};

// `rows` sums of a token to y.
HELM_INLINE void put_row(const float* sums, size_t rows, float* y, bool accumulate) {
  size_t r = 0;
  for (; r + Simd::lanes <= rows; r += Simd::lanes) {
    const V sum = Simd::load(sums + r);
    Simd::store(y + r, accumulate ? Simd::add(Simd::load(y + r), sum) : sum);
  }
  for (; r < rows; ++r) y[r] = accumulate ? y[r] + sums[r] : sums[r];
}

// Where the sums of a piece's panels with some tokens are in y, and whether others are there that they are added to.
inline float* y_at(const LinearArgs& a, const Piece& p, const Block& tokens) {
  return a.y + tokens.begin * a.stride + p.panel * kPanel;
}
inline bool adds_to_y(const LinearArgs& a, const Piece& p) { return a.accumulate || p.begin > 0; }

// Sums of a piece's panels with some tokens to y.
template <size_t width>
void put_sums(const LinearArgs& a, const Piece& p, const Block& tokens, const float* sums) {
  const size_t rows = smaller(p.panels * kPanel, a.rows - p.panel * kPanel);
  float* y = y_at(a, p, tokens);
  for (size_t t = tokens.begin; t < tokens.end; ++t, sums += width, y += a.stride)
    put_row(sums, rows, y, adds_to_y(a, p));
}

// Asks for the lines that `put_sums` writes: all together, sums would wait for each other.
inline void ask_for_y(const LinearArgs& a, const Piece& p, const Block& tokens) {
  float* y = y_at(a, p, tokens);
  for (size_t t = tokens.begin; t < tokens.end; ++t, y += a.stride)
    for (size_t panel = 0; panel < p.panels; ++panel) __builtin_prefetch(y + panel * kPanel, 1);
}

// Part `part` of `parts` of the columns that come after [k, k + depth): of these panels, then of the next.
template <class Product>
LinesAhead ahead_of(const LinearArgs& a, const Piece& p, size_t k, size_t depth, size_t part, size_t parts) {
  const bool more = k + depth < p.end;
  const size_t next = more ? k + depth : p.begin;
  return lines_ahead<Product::format>(a, more ? p.panel : p.panel + Product::panels, Product::panels, next,
                                      smaller(Product::depth, p.end - next), part, parts, runs_of(depth));
}

// A Product has a format; block, panels and depth: tokens of a block, panels and columns of a tile;
// make(a, panel, panels, k, depth): the tile of columns [k, k + depth), perhaps in a.scratch;
// input(a, block, k): a block's activations from column k on;
// multiply(a, tile, panels, depth, x, tokens, sums, ahead): 16 panels sums of each token, and nothing beyond them; may
// ask for what is ahead once a run, else all is asked for when it is done. Panels are 1 or Product::panels.
template <class Product>
void multiply_piece(const LinearArgs& a, const Blocks& blocks, const Piece& p) {
  constexpr size_t width = Product::panels * kPanel;
  static_assert(width * kChunk <= kSumFloats, "sums are beside a tile");
  static_assert(Product::panels <= 2, "a piece has one panel, or all that a tile has");
  float* sums = a.scratch + kTileFloats;
  const size_t first = block_at(blocks, p.chunk.begin).begin;
  const bool whole = (p.panel + p.panels) * kPanel <= a.rows;
  const bool at_once = whole && !adds_to_y(a, p) && Product::depth >= p.end - p.begin;
  for (size_t k = p.begin; k < p.end; k += Product::depth) {
    const bool last = k + Product::depth >= p.end;
    const size_t depth = smaller(Product::depth, p.end - k);
    const auto& tile = Product::make(a, p.panel, p.panels, k, depth);
    for (size_t b = p.chunk.begin; b < p.chunk.end; ++b) {
      const Block block = block_at(blocks, b);
      LinesAhead ahead = ahead_of<Product>(a, p, k, depth, b - p.chunk.begin, p.chunk.end - p.chunk.begin);
      const Sums sum = at_once ? Sums{y_at(a, p, block), a.stride, false}
                               : Sums{sums + (block.begin - first) * width, width, k > p.begin};
      if (last && !at_once) ask_for_y(a, p, block);
      Product::multiply(a, tile, p.panels, depth, Product::input(a, block, k), block.end - block.begin, sum, ahead);
      ahead.ask_for_rest();
      if (last && !at_once) put_sums<width>(a, p, block, sum.at);
    }
  }
}

template <class Product, size_t reach = kReach>
void multiply_all(const LinearArgs& a) {
  const Blocks blocks = blocks_of(a.tokens, Product::block), chunks = blocks_of(blocks.count, kChunk / Product::block);
  for (size_t c = 0; c < chunks.count; ++c)
    for (size_t k = 0; k < a.columns; k += reach)
      for (size_t panel = a.first_panel; panel < a.last_panel; panel += Product::panels)
        multiply_piece<Product>(a, blocks,
                                {panel, smaller(Product::panels, a.last_panel - panel), k,
                                 smaller(k + reach, a.columns), block_at(chunks, c)});
}

}  // namespace
}  // namespace helm
