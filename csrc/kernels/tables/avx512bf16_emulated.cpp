// The same products on AVX-512 without BF16 units; compiled for AVX-512, so nothing but the table may leave this file.
#if defined(__x86_64__)
#include "kernels/simd/avx512.h"
//
#include "kernels/isa.h"
#include "kernels/tables/pairs_table_impl.h"

const helm::Kernels& helm::avx512bf16_emulated_kernels() {
  static const Kernels table = with_pairs(avx512_kernels(), "avx512bf16-emulated");
  return table;
}
#endif
