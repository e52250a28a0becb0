// What LDTILECFG reads: how large each tile is.
#pragma once
#include <cstddef>
#include <cstdint>

namespace helm {

struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t line_bytes[16] = {};  // at most 64
  uint8_t lines[16] = {};        // at most 16

  void set(int tile, size_t line_count, size_t bytes) {
    lines[tile] = static_cast<uint8_t>(line_count);
    line_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileConfig) == 64, "the processor reads 64 bytes");

}  // namespace helm
