// A table with the kernels of tiles, for the instruction set whose Simd and Tiles were included before.
#pragma once
#include "kernels/attention/attention_tiles_impl.h"
#include "kernels/linear/tile_pairs_impl.h"

namespace helm {
namespace {

static_assert(Simd::code_stream_tokens >= 3, "blocks of an even width have room in input_size floats a token");

inline Kernels with_tiles(Kernels table) {
  table.name = Tiles::name;
  table.part_panels = 8;         // a call ends with sums that no multiplication hides
  table.pair_stream_tokens = 9;  // 10 tokens take a Granite Rapids equally long both ways
  table.linear_pairs = linear_tiles;
  table.pack_pairs = pack_tiles;
  table.prefill_pairs = prefill_tiles;
  table.peak_pairs = kPeakTiles;
  return table;
}

}  // namespace
}  // namespace helm
