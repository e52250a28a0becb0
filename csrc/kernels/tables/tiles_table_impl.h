// A table with the kernels of tiles, for the instruction set whose Simd and Tiles were included before.
#pragma once
#include "kernels/attention/attention_tiles_impl.h"
#include "kernels/linear/tile_pairs_impl.h"

namespace helm {
namespace {

inline Kernels with_tiles(Kernels table) {
  table.name = Tiles::name;
  table.pair_stream_tokens = 9;  // of ten a Granite Rapids takes as long either way
  table.linear_pairs = linear_tiles;
  table.pack_pairs = pack_tiles;
  table.prefill_pairs = prefill_tiles;
  table.peak_pairs = kPeakTiles;
  return table;
}

}  // namespace
}  // namespace helm
