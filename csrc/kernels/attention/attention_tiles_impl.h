// Attention of prompts by tiles, whose factors are pairs of bf16, for the instruction set whose Simd and Tiles were
// included before.
//
// Scores are keys times queries, and sums are values times weights, whose pairs both lie as they are: of values a tile
// has lines of positions, which are transposed once for all rows.
#pragma once
#include "kernels/attention/attention_pair_layout_impl.h"
#include "kernels/linear/tile_product_impl.h"

namespace helm {
namespace {

struct TileFactors : PairLayout, SumsByPanel {
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

  // [width][tile_pairs]; up to whole steps pairs are zero.
  static void load_values(const PrefillArgs& a, const PrefillScratch& s, const char* rows, size_t count) {
    PairLayout::load_values(a, s, rows, count);
    auto* pairs = reinterpret_cast<int32_t*>(s.values);
    auto* lines = value_lines(s);
    const size_t known = (count + 1) / 2, whole = whole_steps(s, count);
    memset(pairs + known * s.width, 0, (whole - known) * s.width * sizeof(int32_t));
    transpose_words(pairs, whole, s.width, lines, tile_pairs);
  }
  // The transposed values lie behind the pairs that they are made of.
  static int32_t* value_lines(const PrefillScratch& s) {
    return reinterpret_cast<int32_t*>(s.values) + tile_pairs * s.width;
  }

  // Of up to a tile's lines more positions.
  static void scores(const PrefillScratch& s, size_t first, size_t some) {
    const size_t line = s.width / 2 * sizeof(int32_t), step = step_of(s.width), steps = s.width / 2 / step;
    const float* panel = s.q + first * s.width / 2;
    const TileFactor queries = {panel, panel_line, kLine, step * panel_line};
    const auto keys_at = [&](size_t at) {
      return TileFactor{s.keys + at * s.width / 2, line, kTileLines * line, step * sizeof(int32_t)};
    };
    const auto sums_at = [&](size_t at) {
      return TileSums{s.scores + at * kRowsTogether, panel_line, kTileLines * panel_line, kLine};
    };
    HeldSums<2, panel_tiles, LoadKept> held;
    size_t at = 0;
    for (; at + kTileLines < some; at += 2 * kTileLines)
      held.multiply(keys_at(at), queries, steps, sums_at(at), false, []() HELM_LAMBDA {});
    held.store();
    if (at < some) multiply_tiles<1, panel_tiles>(keys_at(at), queries, steps, sums_at(at), false);
  }

  // [tile_pairs][kRowsTogether]; up to whole steps pairs are zero.
  static const int32_t* weights(const PrefillArgs& a, const PrefillScratch& s, size_t count) {
    PairLayout::weights(a, s, count);
    auto* pairs = reinterpret_cast<int32_t*>(s.scores);
    const size_t known = (count + 1) / 2, whole = whole_steps(s, count);
    memset(pairs + known * kRowsTogether, 0, (whole - known) * kRowsTogether * sizeof(int32_t));
    return pairs;
  }

  // Of a whole panel: the sums of rows that it does not have are left in the scratch.
  static void add_values(const PrefillScratch& s, const int32_t* weights, size_t first, size_t, size_t some) {
    constexpr size_t line = tile_pairs * sizeof(int32_t);
    const size_t step = step_of(s.width), steps = whole_steps(s, some) / step;
    const TileFactor right = {weights, panel_line, kLine, step * panel_line};
    const auto values_at = [&](size_t d) {
      return TileFactor{value_lines(s) + d * tile_pairs, line, kTileLines * line, step * sizeof(int32_t)};
    };
    const auto sums_at = [&](size_t d) {
      return TileSums{sum_at(s, first, d), panel_line, kTileLines * panel_line, kLine};
    };
    HeldSums<2, panel_tiles, LoadKept> held;
    size_t d = 0;
    for (; d + kPanel < s.width; d += 2 * kPanel)
      held.multiply(values_at(d), right, steps, sums_at(d), true, []() HELM_LAMBDA {});
    held.store();
    if (d < s.width) multiply_tiles<1, panel_tiles>(values_at(d), right, steps, sums_at(d), true);
  }
};

void prefill_tiles(const PrefillArgs& a) {
  Tiles::configure(TileFactors::config_of(round_up(a.head_dim, kPanel)));
  prefill_of<TileFactors>(a);
  Tiles::release();
}

}  // namespace
}  // namespace helm
