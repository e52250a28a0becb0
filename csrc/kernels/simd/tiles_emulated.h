// The tiles of AMX in plain C++, as Intel's manual describes the instructions. What a processor refuses ends the
// program.
#pragma once
#include <cstdlib>

#include "formats/format.h"
#include "kernels/simd/tile_config.h"

namespace helm {
namespace {

struct Tiles {
  static constexpr const char* name = "amx-emulated";
  static constexpr size_t most_lines = 16, line_words = 16;

  struct State {
    TileConfig config;
    uint32_t words[8][most_lines][line_words];
  };
  static State& state() {
    static thread_local State here = {};
    return here;
  }

  static void configure(const TileConfig& config) {
    state() = {};
    state().config = config;
  }
  static void release() { state() = {}; }

  template <int tile>
  static void zero() {
    check(lines(tile) > 0);
    memset(state().words[tile], 0, sizeof(state().words[tile]));
  }
  template <int tile>
  static void load(const void* from, size_t stride) {
    zero<tile>();
    for (size_t m = 0; m < lines(tile); ++m)
      memcpy(state().words[tile][m], static_cast<const char*>(from) + m * stride, bytes(tile));
  }
  template <int tile>
  static void load_passing(const void* from, size_t stride) {
    load<tile>(from, stride);
  }
  template <int tile>
  static void store(void* to, size_t stride) {
    check(lines(tile) > 0);
    for (size_t m = 0; m < lines(tile); ++m)
      memcpy(static_cast<char*>(to) + m * stride, state().words[tile][m], bytes(tile));
  }
  // TDPBF16PS: the first numbers of all pairs are summed up, and the second ones, then both sums, and what was there
  // before. Products are exact, sums are rounded to the nearest even; subnormals are zero on threads that flush them.
  template <int sums, int first, int second>
  static void add_pairs() {
    check(lines(sums) > 0 && lines(sums) == lines(first) && bytes(sums) == bytes(second));
    check(lines(second) > 0 && bytes(first) == 4 * lines(second));
    auto& to = state().words[sums];
    const auto &a = state().words[first], &b = state().words[second];
    for (size_t m = 0; m < lines(sums); ++m) {
      float firsts[line_words] = {}, seconds[line_words] = {};
      for (size_t k = 0; k < lines(second); ++k)
        for (size_t n = 0; n < line_words; ++n) {
          firsts[n] += first_of(a[m][k]) * first_of(b[k][n]);
          seconds[n] += second_of(a[m][k]) * second_of(b[k][n]);
        }
      for (size_t n = 0; n < line_words; ++n) to[m][n] = bits_of(float_of(to[m][n]) + (firsts[n] + seconds[n]));
    }
  }

 private:
  static size_t lines(int tile) { return state().config.lines[tile]; }
  static size_t bytes(int tile) { return state().config.line_bytes[tile]; }
  static float first_of(uint32_t pair) { return float_of(pair << 16); }
  static float second_of(uint32_t pair) { return float_of(pair & 0xffff0000u); }
  static void check(bool allowed) {
    if (!allowed) abort();
  }
};

}  // namespace
}  // namespace helm
