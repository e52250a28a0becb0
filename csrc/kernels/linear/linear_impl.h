// Linear layers over packed weights, for the instruction set whose Simd was included before.
//
// Up to Simd::stream_tokens the weights are the cost: each thread reads one strictly ascending stream, widens
// as it loads, and keeps enough independent accumulators to hide the latency of FMA. Beyond, arithmetic is the
// cost. Where loads and conversions fit beside it (streams_many), plain weights go on like that, a panel for one block
// of tokens after the other; else a panel (pair) is widened once per product_depth columns and reused by a chunk of
// tokens from L1, as quantised ones are where activations are f32, or bf16 is imitated.
#pragma once
#include "kernels/linear/product_impl.h"

namespace helm {
namespace {

template <Format F>
V load_as(const void* data, size_t index) {
  if constexpr (F == Format::f32) return Simd::load(static_cast<const float*>(data) + index);
  if constexpr (F == Format::f16) return Simd::load_f16(static_cast<const uint16_t*>(data) + index);
  return Simd::load_bf16(static_cast<const uint16_t*>(data) + index);
}

inline const void* offset(Format format, const void* data, size_t elements) {
  return static_cast<const char*>(data) + elements * size_of(format);
}

// Asks for the line kAhead bytes beyond element `index`: a page took the product of one token from 0.85 to 1.0 of the
// read limit, of eight from 0.6 to 0.85 (Cascade Lake).
template <Format F>
HELM_INLINE void prefetch(const void* data, size_t index) {
  __builtin_prefetch(static_cast<const char*>(data) + index * size_of(F) + kAhead);
}

// One panel times T tokens: y[t][0..16) for the rows below `valid`.
template <Format F, int T>
void stream_panel(const void* weights, size_t columns, const float* x, float* y, size_t stride, size_t valid,
                  bool accumulate) {
  constexpr int U = (Simd::in_flight + T * kVectors - 1) / (T * kVectors);  // columns in flight
  V acc[U][T][kVectors];
  for (auto& column : acc)
    for (auto& token : column)
      for (auto& v : token) v = Simd::zero();
  size_t k = 0;
  for (; k + U <= columns; k += U)
#pragma GCC unroll 16
    for (int u = 0; u < U; ++u) {
      if (F == Format::f32 || u % 2 == 0) prefetch<F>(weights, (k + u) * kPanel);  // once per line
      V w[kVectors];
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) w[i] = load_as<F>(weights, (k + u) * kPanel + i * Simd::lanes);
#pragma GCC unroll 16
      for (int t = 0; t < T; ++t) {
        const V factor = Simd::set(x[(k + u) * T + t]);
#pragma GCC unroll 16
        for (int i = 0; i < kVectors; ++i) acc[u][t][i] = Simd::fma(w[i], factor, acc[u][t][i]);
      }
    }
  for (; k < columns; ++k)
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i)
        acc[0][t][i] =
            Simd::fma(load_as<F>(weights, k * kPanel + i * Simd::lanes), Simd::set(x[k * T + t]), acc[0][t][i]);
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    float rows[kPanel];
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      V total = acc[0][t][i];
#pragma GCC unroll 16
      for (int u = 1; u < U; ++u) total = Simd::add(total, acc[u][t][i]);
      Simd::store(rows + i * Simd::lanes, total);
    }
    float* target = y + t * stride;
    for (size_t r = 0; r < valid; ++r) target[r] = accumulate ? target[r] + rows[r] : rows[r];
  }
}

// P f32 panels, `panel_stride` apart, times T tokens over `depth` columns: y[t][0..16 P).
template <int P, int T>
void product_panels(const float* weights, size_t panel_stride, size_t depth, const float* x, float* y, size_t stride,
                    bool accumulate) {
  V acc[T][P * kVectors];
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
    for (int i = 0; i < P * kVectors; ++i)
      acc[t][i] = accumulate ? Simd::load(y + t * stride + i * Simd::lanes) : Simd::zero();
  for (size_t k = 0; k < depth; ++k) {
    V w[P * kVectors];
#pragma GCC unroll 16
    for (int i = 0; i < P * kVectors; ++i)
      w[i] = Simd::load(weights + (i / kVectors) * panel_stride + k * kPanel + (i % kVectors) * Simd::lanes);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      const V factor = Simd::set(x[k * T + t]);
#pragma GCC unroll 16
      for (int i = 0; i < P * kVectors; ++i) acc[t][i] = Simd::fma(factor, w[i], acc[t][i]);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
    for (int i = 0; i < P * kVectors; ++i) Simd::store(y + t * stride + i * Simd::lanes, acc[t][i]);
}

using StreamPanel = void (*)(const void*, size_t, const float*, float*, size_t, size_t, bool);
using ProductPanels = void (*)(const float*, size_t, size_t, const float*, float*, size_t, bool);

template <Format F, int T = Simd::stream_block>
StreamPanel stream_for(size_t tokens) {
  if constexpr (T > 1)
    if (tokens != T) return stream_for<F, T - 1>(tokens);
  return stream_panel<F, T>;
}

template <int P, int T = Simd::product_block>
ProductPanels product_for(size_t tokens) {
  if constexpr (T > 1)
    if (tokens != T) return product_for<P, T - 1>(tokens);
  return product_panels<P, T>;
}

// Up to product_panels panels times one block of tokens; rows from `valid` on are left alone.
inline void product_tile(const float* weights, size_t panels, size_t panel_stride, size_t depth, const float* x,
                         size_t tokens, float* y, size_t stride, size_t valid, bool accumulate) {
  const ProductPanels run = panels == 1 ? product_for<1>(tokens) : product_for<Simd::product_panels>(tokens);
  const size_t rows = panels * kPanel;
  if (valid >= rows) return run(weights, panel_stride, depth, x, y, stride, accumulate);
  float tile[Simd::product_block * Simd::product_panels * kPanel];
  run(weights, panel_stride, depth, x, tile, rows, false);
  for (size_t t = 0; t < tokens; ++t)
    for (size_t r = 0; r < valid; ++r)
      y[t * stride + r] = accumulate ? y[t * stride + r] + tile[t * rows + r] : tile[t * rows + r];
}

template <Format F>
void widen_as(const void* source, size_t n, float* target) {
  size_t i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) Simd::store(target + i, load_as<F>(source, i));
  for (; i < n; ++i) {
    if constexpr (F == Format::f32) target[i] = static_cast<const float*>(source)[i];
    if constexpr (F == Format::f16) target[i] = widen_f16(static_cast<const uint16_t*>(source)[i]);
    if constexpr (F == Format::bf16) target[i] = widen_bf16(static_cast<const uint16_t*>(source)[i]);
  }
}

void widen(Format format, const void* source, size_t n, float* target) {
  if (format == Format::f32) widen_as<Format::f32>(source, n, target);
  if (format == Format::f16) widen_as<Format::f16>(source, n, target);
  if (format == Format::bf16) widen_as<Format::bf16>(source, n, target);
}

constexpr size_t kStreamBlocks = 32;  // blocks of tokens whose x is read for every panel: L2 and L3 hold it

// All panels times the blocks of tokens of a chunk.
template <Format F>
void linear_stream_chunk(const LinearArgs& a, const Blocks& blocks, Block chunk) {
  for (size_t panel = a.first_panel; panel < a.last_panel; ++panel) {
    const void* weights = offset(F, a.weights, panel * a.columns * kPanel);
    const size_t valid = smaller(kPanel, a.rows - panel * kPanel);
    for (size_t b = chunk.begin; b < chunk.end; ++b) {
      const Block block = block_at(blocks, b);
      stream_for<F>(block.end - block.begin)(
          weights, a.columns, static_cast<const float*>(a.x) + block.begin * a.columns,
          a.y + block.begin * a.stride + panel * kPanel, a.stride, valid, a.accumulate);
    }
  }
}

template <Format F>
void linear_stream(const LinearArgs& a) {
  const Blocks blocks = blocks_of(a.tokens, Simd::stream_block), chunks = blocks_of(blocks.count, kStreamBlocks);
  for (size_t c = 0; c < chunks.count; ++c) linear_stream_chunk<F>(a, blocks, block_at(chunks, c));
}

// To bf16 and back, to nearest even.
inline void round_values(float* values, size_t n) {
  uint16_t rounded[Simd::lanes];
  for (size_t i = 0; i + Simd::lanes <= n; i += Simd::lanes) {
    Simd::store_bf16(rounded, Simd::load(values + i));
    Simd::store(values + i, Simd::load_bf16(rounded));
  }
}

// Of f32 activations, perhaps rounded to bf16: panels are widened to f32, unless they are that already.
template <Format F>
struct FloatProduct {
  static_assert(Simd::product_panels * Simd::product_depth * kPanel <= kTileFloats, "a tile is in the scratch");
  static constexpr Format format = F;
  static constexpr size_t block = Simd::product_block, panels = Simd::product_panels, depth = Simd::product_depth;
  static constexpr size_t panel_floats(const LinearArgs& a) {
    return (F == Format::f32 ? a.columns : Simd::product_depth) * kPanel;
  }

  static const float* make(const LinearArgs& a, size_t panel, size_t count, size_t k, size_t depth) {
    if constexpr (F == Format::f32) return reinterpret_cast<const float*>(panel_at<F>(a, panel, k));
    for (size_t p = 0; p < count; ++p) {
      float* target = a.scratch + p * Simd::product_depth * kPanel;
      if constexpr (quantised(F)) {
        widen_runs<F>(reinterpret_cast<const uint8_t*>(panel_at<F>(a, panel + p, 0)), k / kRun,
                      (k + depth + kRun - 1) / kRun, target);
        if (a.rounded) round_values(target, depth * kPanel);
      } else {
        widen_as<F>(panel_at<F>(a, panel + p, k), depth * kPanel, target);
      }
    }
    return a.scratch;
  }
  static const float* input(const LinearArgs& a, Block block, size_t k) {
    return static_cast<const float*>(a.x) + block.begin * a.columns + k * (block.end - block.begin);
  }
  static void multiply(const LinearArgs& a, const float* tile, size_t count, size_t depth, const float* x,
                       size_t tokens, const Sums& sums, LinesAhead& ahead) {
    ahead.ask_for_rest();
    const ProductPanels run = count == 1 ? product_for<1>(tokens) : product_for<Simd::product_panels>(tokens);
    run(tile, panel_floats(a), depth, x, sums.at, sums.step, sums.accumulate);
  }
};

template <Format F>
void linear_as(const LinearArgs& a) {
  if constexpr (!quantised(F))
    if (Simd::streams_many || a.tokens <= Simd::stream_tokens) return linear_stream<F>(a);
  multiply_all<FloatProduct<F>>(a);
}

void linear(const LinearArgs& a) {
  switch (a.format) {
    case Format::f32:
      return linear_as<Format::f32>(a);
    case Format::f16:
      return linear_as<Format::f16>(a);
    case Format::bf16:
      return linear_as<Format::bf16>(a);
    default:
      return with_code_format(a.format, [&](auto format) { linear_as<format.value>(a); });
  }
}

constexpr size_t kStrip = 64;  // columns of a block that are written together: they stay in L1

void pack_x(const float* x, size_t stride, size_t tokens, size_t columns, size_t limit, size_t begin, size_t end,
            float* packed) {
  const Blocks blocks = blocks_of(tokens, limit);
  for (size_t b = 0; b < blocks.count; ++b) {
    const Block block = block_at(blocks, b);
    const size_t width = block.end - block.begin;
    float* target = packed + block.begin * columns;
    for (size_t first = begin; first < end; first += kStrip)
      for (size_t t = 0; t < width; ++t) {
        const float* row = x + (block.begin + t) * stride;
        for (size_t k = first; k < smaller(end, first + kStrip); ++k) target[k * width + t] = row[k];
      }
  }
}

}  // namespace
}  // namespace helm
