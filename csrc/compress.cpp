#include "compress.h"

#include <algorithm>
#include <cmath>

#include "isa.h"
#include "pack.h"

namespace helm {
namespace {

constexpr float kLargestHalf = 65504.0f;
constexpr int kRounds = 4;  // until quantising what was stored changes nothing; one nearly always does

struct Group {
  uint16_t scale, minimum;
  uint8_t codes[kGroup];
};

// The largest f16 not above `value`, which is within its range.
uint16_t floor_f16(float value) {
  const uint16_t half = narrow_f16(value);
  if (widen_f16(half) <= value) return half;
  if (half & 0x8000u) return static_cast<uint16_t>(half + 1);
  return half == 0 ? uint16_t{0x8001} : static_cast<uint16_t>(half - 1);
}

uint16_t scale_for(float minimum, float largest) {
  uint16_t scale = narrow_f16((largest - minimum) / 15.0f);
  while (minimum + 15.0f * widen_f16(scale) > kLargestHalf) --scale;
  return scale;
}

Group quantise_once(const float* values, size_t count) {
  const auto [low, high] = std::minmax_element(values, values + count);
  Group group;
  group.minimum = floor_f16(*low);
  const float minimum = widen_f16(group.minimum);
  group.scale = scale_for(minimum, *high);
  const float scale = widen_f16(group.scale);
  for (size_t k = 0; k < count; ++k)
    group.codes[k] =
        scale == 0 ? 0 : static_cast<uint8_t>(std::min(15.0f, std::nearbyint((values[k] - minimum) / scale)));
  return group;
}

float value_of(uint16_t scale, uint16_t minimum, unsigned code) {
  return static_cast<float>(code) * widen_f16(scale) + widen_f16(minimum);
}

// Overwrites `values` with what the group stands for.
Group quantise_group(float* values, size_t count) {
  for (size_t k = 0; k < count; ++k)
    values[k] = std::isnan(values[k]) ? 0.0f : std::clamp(values[k], -kLargestHalf, kLargestHalf) + 0.0f;
  Group group = quantise_once(values, count);
  for (int round = 1; round < kRounds; ++round) {
    for (size_t k = 0; k < count; ++k) values[k] = value_of(group.scale, group.minimum, group.codes[k]);
    const Group again = quantise_once(values, count);
    const bool same = again.scale == group.scale && again.minimum == group.minimum &&
                      std::equal(group.codes, group.codes + count, again.codes);
    if (same) break;
    group = again;
  }
  return group;
}

void put(const Group& group, size_t row, size_t count, uint8_t* target) {
  memcpy(target + row * 2, &group.scale, 2);
  memcpy(target + 32 + row * 2, &group.minimum, 2);
  for (size_t k = 0; k < count; ++k)
    target[64 + k * 8 + row % 8] |= static_cast<uint8_t>(group.codes[k] << (row < 8 ? 0 : 4));
}

float value_at(const void* source, Format format, size_t index) {
  if (format == Format::f32) return static_cast<const float*>(source)[index];
  const uint16_t half = static_cast<const uint16_t*>(source)[index];
  return format == Format::f16 ? widen_f16(half) : widen_bf16(half);
}

}  // namespace

void quantise(const void* source, Format from, void* target, size_t rows, size_t columns) {
  memset(target, 0, q4_size(rows, columns));
  auto* panel = static_cast<uint8_t*>(target);
  for (size_t row = 0; row < rows; ++row) {
    if (row > 0 && row % kPanel == 0) panel += q4_panel_size(columns);
    for (size_t first = 0; first < columns; first += kGroup) {
      const size_t count = std::min(kGroup, columns - first);
      float values[kGroup];
      for (size_t k = 0; k < count; ++k) values[k] = value_at(source, from, row * columns + first + k);
      put(quantise_group(values, count), row % kPanel, count, panel + first / kGroup * 64 + first * 8);
    }
  }
}

void decompress(Pool& pool, const void* source, void* target, Format to, size_t rows, size_t columns) {
  const Kernels& k = kernels();
  auto work = [&](size_t thread) {
    const Range panels = share_of((rows + kPanel - 1) / kPanel, thread, pool.threads());
    k.expand(to, static_cast<const char*>(source) + panels.begin * q4_panel_size(columns), columns,
             panels.end - panels.begin,
             static_cast<char*>(target) + panels.begin * columns * kPanel * size_of(to));
  };
  pool.run(work);
}

void dequantise(const void* source, float* target, size_t rows, size_t columns) {
  for (size_t row = 0; row < rows; ++row) {
    const auto* panel = static_cast<const uint8_t*>(source) + row / kPanel * q4_panel_size(columns);
    const size_t r = row % kPanel;
    for (size_t k = 0; k < columns; ++k) {
      const uint8_t* group = panel + k / kGroup * (64 + kGroup * 8);
      uint16_t scale, minimum;
      memcpy(&scale, group + r * 2, 2);
      memcpy(&minimum, group + 32 + r * 2, 2);
      const unsigned codes = group[64 + k % kGroup * 8 + r % 8];
      target[row * columns + k] = value_of(scale, minimum, r < 8 ? codes & 15 : codes >> 4);
    }
  }
}

}  // namespace helm
