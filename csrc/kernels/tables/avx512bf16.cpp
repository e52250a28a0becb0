// Products of prompts with both factors in bf16 by AVX-512's BF16 units; all else is AVX-512 VNNI's. Compiled for them,
// so nothing but the table may leave this file.
#if defined(__x86_64__)
#include "kernels/simd/avx512.h"
//
#include "kernels/isa.h"
#include "kernels/tables/pairs_table_impl.h"

const helm::Kernels& helm::avx512bf16_kernels() {
  static const Kernels table = with_pairs(avx512vnni_kernels(), "avx512bf16");
  return table;
}
#endif
