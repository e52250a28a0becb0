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

// Calls each(number) for the tiles that hold the sums of M left tiles with N right ones.
template <int M, int N, class Each>
HELM_INLINE void each_sum(const Each& each) {
  each(TileNumber<0>());
  if constexpr (N > 1) each(TileNumber<1>());
  if constexpr (M > 1) each(TileNumber<2>());
  if constexpr (M > 1 && N > 1) each(TileNumber<3>());
}

// Multiplies one step's tiles. before(tile) is called ahead of the product that is added to a tile of sums.
template <int M, int N, class LoadLeft, class Before>
HELM_INLINE void multiply_step(const TileFactor& left, const TileFactor& right, const Before& before) {
  LoadLeft::template load<4>(left.at, left.line);
  Tiles::load<6>(right.at, right.line);
  before(TileNumber<0>());
  Tiles::add_pairs<0, 4, 6>();
  if constexpr (N > 1) {
    Tiles::load<7>(beyond(right.at, right.second), right.line);
    before(TileNumber<1>());
    Tiles::add_pairs<1, 4, 7>();
  }
  if constexpr (M > 1) {
    LoadLeft::template load<5>(beyond(left.at, left.second), left.line);
    before(TileNumber<2>());
    Tiles::add_pairs<2, 5, 6>();
  }
  if constexpr (M > 1 && N > 1) {
    before(TileNumber<3>());
    Tiles::add_pairs<3, 5, 7>();
  }
}

// Loads that keep what is loaded in L1, and those that leave L1 to what is multiplied again and again.
struct LoadKept {
  template <int tile>
  static void load(const void* from, size_t line) {
    Tiles::load<tile>(from, line);
  }
};
struct LoadPassing {
  template <int tile>
  static void load(const void* from, size_t line) {
    Tiles::load_passing<tile>(from, line);
  }
};

template <int tile>
HELM_INLINE char* sum_at(const TileSums& sums) {
  return static_cast<char*>(sums.at) + (tile & 2 ? sums.below : 0) + (tile & 1 ? sums.beside : 0);
}

// Sums that tiles still hold. A tile can be stored only when its last product is there, which takes as long as three
// others: it is stored, and what comes next is loaded, between the first products of what comes next.
template <int M, int N, class LoadLeft>
class HeldSums {
 public:
  void store() {
    if (held_) each_sum<M, N>([&](auto tile) HELM_LAMBDA { Tiles::store<tile>(sum_at<tile>(at_), at_.line); });
    held_ = false;
  }

  // Multiplies M left tiles by N right ones; the sums stay in the tiles. Left lines are rows of pairs; a right line has
  // one such pair of every column. between() is called in every step: what it does goes on while tiles are multiplied.
  template <class Between>
  HELM_INLINE void multiply(TileFactor left, TileFactor right, size_t steps, const TileSums& sums, bool accumulate,
                            const Between& between) {
    const auto begin = [&](auto tile) HELM_LAMBDA {
      if (held_) Tiles::store<tile>(sum_at<tile>(at_), at_.line);
      if (accumulate)
        Tiles::load<tile>(sum_at<tile>(sums), sums.line);
      else
        Tiles::zero<tile>();
    };
    multiply_step<M, N, LoadLeft>(left, right, begin);
    between();
    for (size_t step = 1; step < steps; ++step) {
      left.at = beyond(left.at, left.step);
      right.at = beyond(right.at, right.step);
      multiply_step<M, N, LoadLeft>(left, right, [](auto) HELM_LAMBDA {});
      between();
    }
    at_ = sums;
    held_ = true;
  }

 private:
  TileSums at_ = {};
  bool held_ = false;
};

// The same, whose sums are stored at once.
template <int M, int N>
HELM_INLINE void multiply_tiles(const TileFactor& left, const TileFactor& right, size_t steps, const TileSums& sums,
                                bool accumulate) {
  HeldSums<M, N, LoadKept> held;
  held.multiply(left, right, steps, sums, accumulate, []() HELM_LAMBDA {});
  held.store();
}

}  // namespace
}  // namespace helm
