// Attention of prompts by tiles, whose factors are pairs of bf16, for the instruction set whose Simd and Tiles were
// included before.
//
// Scores are keys times queries, both as pairs lie. Of the weights, times values, a tile has lines of positions: they
// are transposed.
#pragma once
#include "kernels/attention/attention_pair_layout_impl.h"
#include "kernels/linear/tile_product_impl.h"
#include "kernels/elementwise/transpose_impl.h"

namespace helm {
namespace {

struct TileFactors : PairLayout {
  static constexpr size_t panel_tiles = kRowsTogether / kTileLines, panel_line = kRowsTogether * sizeof(int32_t);
  static constexpr size_t tile_pairs = kPrefillTile / 2;  // of positions

  // Pairs that a step multiplies: a whole number of steps is in every width.
  static size_t step_of(size_t width) { return width % kRun == 0 ? kRun / 2 : kRun / 4; }
  static size_t whole_steps(const PrefillScratch& s, size_t positions) {
    return round_up((positions + 1) / 2, step_of(s.width));
  }

  static TileConfig config_of(size_t width) {
    TileConfig config;
    for (int tile = 0; tile < 4; ++tile) config.set(tile, kTileLines, kLine);
    for (int tile = 4; tile < 6; ++tile) config.set(tile, kTileLines, step_of(width) * sizeof(int32_t));
    for (int tile = 6; tile < 8; ++tile) config.set(tile, step_of(width), kLine);
    return config;
  }

  // Up to whole steps pairs are zero.
  static void load_values(const PrefillArgs& a, const PrefillScratch& s, const char* rows, size_t count) {
    PairLayout::load_values(a, s, rows, count);
    const size_t pairs = (count + 1) / 2;
    memset(s.values + pairs * s.width, 0, (whole_steps(s, count) - pairs) * s.width * sizeof(float));
  }

  // Of up to a tile's lines more positions.
  static void scores(const PrefillScratch& s, size_t first, size_t some) {
    const size_t line = s.width / 2 * sizeof(int32_t), step = step_of(s.width);
    const float* panel = s.q + first * s.width / 2;
    for (size_t at = 0; at < some; at += 2 * kTileLines) {
      const auto run = some - at > kTileLines ? multiply_tiles<2, panel_tiles> : multiply_tiles<1, panel_tiles>;
      run({s.keys + at * s.width / 2, line, kTileLines * line, step * sizeof(int32_t)},
          {panel, panel_line, kLine, step * panel_line}, s.width / 2 / step,
          {s.scores + at * kRowsTogether, panel_line, kTileLines * panel_line, kLine}, false);
    }
  }

  // [kRowsTogether][tile_pairs] behind the pairs of positions; up to whole steps pairs are zero.
  static const int32_t* weights(const PrefillArgs& a, const PrefillScratch& s, size_t count) {
    PairLayout::weights(a, s, count);
    auto* pairs = reinterpret_cast<int32_t*>(s.scores);
    auto* lines = pairs + tile_pairs * kRowsTogether;
    const size_t known = (count + 1) / 2, whole = whole_steps(s, count);
    memset(pairs + known * kRowsTogether, 0, (whole - known) * kRowsTogether * sizeof(int32_t));
    for (size_t p = 0; p < whole; p += 4)
      for (size_t r = 0; r < kRowsTogether; r += 4) {
        Words4 block[4];
        for (size_t i = 0; i < 4; ++i) memcpy(&block[i], pairs + (p + i) * kRowsTogether + r, sizeof(Words4));
        transpose<4>(block);
        for (size_t i = 0; i < 4; ++i) memcpy(lines + (r + i) * tile_pairs + p, &block[i], sizeof(Words4));
      }
    return lines;
  }

  // Of a whole panel: the sums of rows that it does not have are left in the scratch.
  static void add_values(const PrefillScratch& s, const int32_t* weights, size_t first, size_t, size_t some) {
    constexpr size_t weights_line = tile_pairs * sizeof(int32_t);
    const size_t line = s.width * sizeof(float), step = step_of(s.width);
    for (size_t d = 0; d < s.width; d += 2 * kPanel) {
      const auto run = s.width - d > kPanel ? multiply_tiles<panel_tiles, 2> : multiply_tiles<panel_tiles, 1>;
      run({weights, weights_line, kTileLines * weights_line, step * sizeof(int32_t)},
          {s.values + d, line, kLine, step * line}, whole_steps(s, some) / step,
          {s.out + first * s.width + d, line, kTileLines * line, kLine}, true);
    }
  }
};

void prefill_tiles(const PrefillArgs& a) {
  Tiles::configure(TileFactors::config_of(round_up(a.head_dim, kPanel)));
  prefill_of<TileFactors>(a);
  Tiles::release();
}

}  // namespace
}  // namespace helm
