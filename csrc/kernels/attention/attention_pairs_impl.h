// Attention of prompts by units that multiply pairs of bf16 in registers, for the instruction set whose Simd was
// included before.
#pragma once
#include "kernels/attention/attention_pair_layout_impl.h"
#include "kernels/linear/bf16_pairs_impl.h"

namespace helm {
namespace {

struct PairNumbers : SumsOfFloats {
  using Number = int32_t;
  using Register = I;
  static Register load(const Number* p) { return Simd::words(p); }
  static Register every(Number x) { return Simd::every(x); }
  static V add_product(V sum, Register w, Register x) { return Simd::dot_pairs(sum, w, x); }
};

struct PairFactors : PairLayout, RegisterProducts<PairNumbers, 2> {};

void prefill_pairs(const PrefillArgs& a) { prefill_of<PairFactors>(a); }

}  // namespace
}  // namespace helm
