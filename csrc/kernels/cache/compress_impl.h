// Expansion of q4, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/linear/linear_impl.h"

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
void expand_as(const uint8_t* source, size_t columns, size_t panels, void* target) {
  using C = Codes<Format::q4>;
  for (size_t panel = 0, at = 0; panel < panels; ++panel, source += kPanel * row_size(Format::q4, columns))
    for (size_t first = 0; first < columns; first += kRun) {
      const C code(codes_block<Format::q4>(source, first / facts_of(Format::q4).columns));
      const size_t count = smaller(kRun, columns - first);
      V scale[kVectors], low[kVectors];
      code.scale(0, scale);
      code.minimum(0, low);
      code.pairs(first / kRun % 2, [&](size_t p, int i, I w) HELM_LAMBDA {
        const size_t to = at + 2 * p * kPanel + i * Simd::lanes, column = 2 * p;
        if (column < count) store_as<F>(target, to, Simd::fma(Simd::low_words(w), scale[i], low[i]));
        if (column + 1 < count) store_as<F>(target, to + kPanel, Simd::fma(Simd::high_words(w), scale[i], low[i]));
      });
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
