// Products of prompts with both factors in bf16, and attention of prompts, by NEON's BF16 units; all else is that of
// NEON with I8MM, which processors with such units have as well. Compiled for them, so nothing but the table may leave
// this file.
#if defined(__aarch64__)
#include "kernels/simd/neon.h"
//
#include "kernels/isa.h"
#include "kernels/tables/pairs_table_impl.h"

const helm::Kernels& helm::neonbf16_kernels() {
  static const Kernels table = with_pairs(neoni8mm_kernels(), "neonbf16");
  return table;
}
#endif
