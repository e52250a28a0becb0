// A table with the kernels of BF16 units, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/attention/attention_pairs_impl.h"

namespace helm {
namespace {

inline Kernels with_pairs(Kernels table, const char* name) {
  table.name = name;
  table.linear_pairs = linear_pairs;
  table.pack_pairs = pack_pairs;
  table.prefill_pairs = prefill_pairs;
  table.peak_pairs = {2 * kPeakChains * Simd::lanes, peak_pairs};
  return table;
}

}  // namespace
}  // namespace helm
