// Products of many tokens with quantised weights in 8 bits by NEON's I8MM; all else is that of NEON with dot products.
// Compiled for it, so nothing but the table may leave this file.
#if defined(__aarch64__)
#include "kernels/simd/neon.h"
//
#include "kernels/linear/byte_matrices_impl.h"
#include "kernels/isa.h"

namespace helm {
namespace {

Kernels with_matrices(Kernels table, const char* name) {
  table.name = name;
  table.linear_bytes = linear_matrices;
  table.pack_bytes = pack_matrices;
  table.peak_bytes = {8 * kPeakChains * Simd::lanes, peak_matrices};
  return table;
}

}  // namespace
}  // namespace helm

const helm::Kernels& helm::neoni8mm_kernels() {
  static const Kernels table = with_matrices(neondot_kernels(), "neoni8mm");
  return table;
}
#endif
