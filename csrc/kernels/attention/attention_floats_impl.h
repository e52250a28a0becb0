// Attention of prompts with factors in f32, for the instruction set whose Simd was included before. Where both factors
// of products are declared bf16, they are rounded to that first: what BF16 units multiply.
#pragma once
#include "kernels/attention/attention_prompt_impl.h"

namespace helm {
namespace {

// x[n], a multiple of a register, to the nearest bf16.
inline void round_to_bf16(float* x, size_t n) {
  uint16_t halves[Simd::lanes];
  for (size_t i = 0; i < n; i += Simd::lanes) {
    Simd::store_bf16(halves, Simd::load(x + i));
    Simd::store(x + i, Simd::load_bf16(halves));
  }
}

struct FloatNumbers : SumsOfFloats {
  using Number = float;
  using Register = V;
  static Register load(const Number* p) { return Simd::load(p); }
  static Register every(Number x) { return Simd::set(x); }
  static V add_product(V sum, Register w, Register x) { return Simd::fma(x, w, sum); }
};

struct FloatFactors : RegisterProducts<FloatNumbers, 1> {
  HELM_INLINE static V exponential(V x) { return exp_of(x); }
  static bool rounds(const PrefillArgs& a) { return a.activations == Activations::bf16; }

  // A panel is [width][kRowsTogether]; columns beyond head_dim are zero, and rows beyond `count` are zero.
  static void pack(const PrefillArgs& a, const PrefillScratch& s, size_t first, size_t count) {
    const float factor = a.scoring.factor;
    float* panel = s.q + first * s.width;
    if (count < kRowsTogether || a.head_dim < s.width) memset(panel, 0, kRowsTogether * s.width * sizeof(float));
    for (size_t r = 0; r < count; ++r) {
      const float* q = a.q + query_at(a, first + r);
      for (size_t d = 0; d < a.head_dim; ++d) panel[d * kRowsTogether + r] = q[d] * factor;
    }
    if (rounds(a)) round_to_bf16(panel, kRowsTogether * s.width);
  }

  // Tiles are [kPrefillTile][width].
  static void load_keys(const PrefillArgs& a, const PrefillScratch& s, const char* rows, size_t count) {
    load(a, s, rows, count, s.keys);
  }
  static void load_values(const PrefillArgs& a, const PrefillScratch& s, const char* rows, size_t count) {
    load(a, s, rows, count, s.values);
  }
  static void load(const PrefillArgs& a, const PrefillScratch& s, const char* rows, size_t count, float* to) {
    load_rows(a, rows, count, s.width, to);
    if (rounds(a) && a.format != Format::bf16) round_to_bf16(to, count * s.width);
  }

  static const float* weights(const PrefillArgs& a, const PrefillScratch& s, size_t count) {
    if (rounds(a)) round_to_bf16(s.scores, count * kRowsTogether);
    return s.scores;
  }
};

void prefill(const PrefillArgs& a) { prefill_of<FloatFactors>(a); }

}  // namespace
}  // namespace helm
