// The tiles of AMX, by its instructions. They belong to a thread: it configures them, and releases them in the end.
//
// Written out, because GCC 12's intrinsics take literal numbers alone, and do not say that they read memory.
#pragma once
#include "kernels/simd/tile_config.h"

namespace helm {
namespace {

struct Tiles {
  static constexpr const char* name = "amx";

  // All tiles become zero.
  static void configure(const TileConfig& config) { __asm__ volatile("ldtilecfg %0" : : "m"(config)); }
  static void release() { __asm__ volatile("tilerelease" : : : "memory"); }

  template <int tile>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(tile));
  }
  // Lines are `stride` bytes apart.
  template <int tile>
  static void load(const void* from, size_t stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
  }
  // The same of what is not soon read again: L1 keeps what it has.
  template <int tile>
  static void load_passing(const void* from, size_t stride) {
    __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int tile>
  static void store(void* to, size_t stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(tile) : "memory");
  }
  // Adds to f32 sums[m][n] the products of pairs of bf16 first[m][k] with second[k][n].
  template <int sums, int first, int second>
  static void add_pairs() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(sums), "i"(first), "i"(second));
  }
};

}  // namespace
}  // namespace helm
