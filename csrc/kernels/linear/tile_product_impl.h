// A product of up to two by two tiles, for the Tiles that were included before.
//
// Tiles 0 to 3 are sums: of the first left one with either right one, then of the second. 4 and 5 are the left ones, 6
// and 7 the right ones; each serves two products once it is loaded.
#pragma once
#include <type_traits>

#include "kernels/linear/codes_impl.h"

namespace helm {
namespace {

constexpr size_t kTileLines = 16;

// Bytes from line to line, to the second tile, and to what the next step multiplies.
struct TileFactor {
  const void* at;
  size_t line, second, step;
};

struct TileSums {
  void* at;
  size_t line, below, beside;  // bytes to the sums of the other left tile, and of the other right one
};

template <int tile>
using TileNumber = std::integral_constant<int, tile>;

inline const char* beyond(const void* at, size_t bytes) { return static_cast<const char*>(at) + bytes; }

template <int M, int N, class Each>
HELM_INLINE void each_sum(const TileSums& sums, const Each& each) {
  char* at = static_cast<char*>(sums.at);
  each(TileNumber<0>(), at);
  if constexpr (N > 1) each(TileNumber<1>(), at + sums.beside);
  if constexpr (M > 1) each(TileNumber<2>(), at + sums.below);
  if constexpr (M > 1 && N > 1) each(TileNumber<3>(), at + sums.below + sums.beside);
}

// Of M left tiles with N right ones. Left lines are rows of pairs; a right line has one such pair of every column.
// between() is called in every step: what it does goes on while tiles are multiplied.
template <int M, int N, class Between>
HELM_INLINE void multiply_tiles_beside(TileFactor left, TileFactor right, size_t steps, const TileSums& sums,
                                       bool accumulate, const Between& between) {
  each_sum<M, N>(sums, [&](auto tile, char* at) HELM_LAMBDA {
    if (accumulate)
      Tiles::load<tile>(at, sums.line);
    else
      Tiles::zero<tile>();
  });
  for (size_t step = 0; step < steps; ++step) {
    Tiles::load<4>(left.at, left.line);
    Tiles::load<6>(right.at, right.line);
    Tiles::add_pairs<0, 4, 6>();
    if constexpr (N > 1) {
      Tiles::load<7>(beyond(right.at, right.second), right.line);
      Tiles::add_pairs<1, 4, 7>();
    }
    if constexpr (M > 1) {
      Tiles::load<5>(beyond(left.at, left.second), left.line);
      Tiles::add_pairs<2, 5, 6>();
    }
    if constexpr (M > 1 && N > 1) Tiles::add_pairs<3, 5, 7>();
    between();
    left.at = beyond(left.at, left.step);
    right.at = beyond(right.at, right.step);
  }
  each_sum<M, N>(sums, [&](auto tile, char* at) HELM_LAMBDA { Tiles::store<tile>(at, sums.line); });
}

template <int M, int N>
void multiply_tiles(TileFactor left, TileFactor right, size_t steps, const TileSums& sums, bool accumulate) {
  multiply_tiles_beside<M, N>(left, right, steps, sums, accumulate, []() HELM_LAMBDA {});
}

}  // namespace
}  // namespace helm
