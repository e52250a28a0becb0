// Expansion of q4 (see compress.h), for the instruction set whose Simd was included before.
#pragma once
#include "linear_impl.h"

namespace helm {
namespace {

template <Format F>
void store_as(void* target, size_t index, V v) {
  if constexpr (F == Format::f32) Simd::store(static_cast<float*>(target) + index, v);
  if constexpr (F == Format::f16) Simd::store_f16(static_cast<uint16_t*>(target) + index, v);
  if constexpr (F == Format::bf16) Simd::store_bf16(static_cast<uint16_t*>(target) + index, v);
}

// Code times scale is exact in f32, so fused and separate additions agree.
template <Format F>
void expand_group(const uint8_t* group, size_t count, void* target, size_t at) {
  const auto* halves = reinterpret_cast<const uint16_t*>(group);
  V scale[kVectors], minimum[kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    scale[i] = Simd::load_f16(halves + i * Simd::lanes);
    minimum[i] = Simd::load_f16(halves + kPanel + i * Simd::lanes);
  }
  for (size_t k = 0; k < count; ++k) {
    if (k % 8 == 0) __builtin_prefetch(group + 64 + k * 8 + kAhead);  // once per line
    V codes[kVectors];
    Simd::nibbles(group + 64 + k * 8, codes);
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i)
      store_as<F>(target, at + k * kPanel + i * Simd::lanes, Simd::fma(codes[i], scale[i], minimum[i]));
  }
}

template <Format F>
void expand_as(const uint8_t* source, size_t columns, size_t panels, void* target) {
  size_t at = 0;
  for (size_t panel = 0; panel < panels; ++panel)
    for (size_t first = 0; first < columns; first += 64) {
      const size_t count = smaller(64, columns - first);
      expand_group<F>(source, count, target, at);
      source += 64 + count * 8;
      at += count * kPanel;
    }
}

void expand(Format format, const void* source, size_t columns, size_t panels, void* target) {
  const auto* bytes = static_cast<const uint8_t*>(source);
  if (format == Format::f32) expand_as<Format::f32>(bytes, columns, panels, target);
  if (format == Format::f16) expand_as<Format::f16>(bytes, columns, panels, target);
  if (format == Format::bf16) expand_as<Format::bf16>(bytes, columns, panels, target);
}

}  // namespace
}  // namespace helm
