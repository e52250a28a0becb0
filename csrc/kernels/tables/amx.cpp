// Products of prompts with both factors in bf16, and attention of prompts, by AMX's tiles; all else is that of AVX-512
// with BF16 units. Compiled for them, so nothing but the table may leave this file.
#if defined(__x86_64__)
#include "kernels/simd/avx512.h"
#include "kernels/simd/tiles_amx.h"
//
#include "kernels/isa.h"
#include "kernels/tables/tiles_table_impl.h"

const helm::Kernels& helm::amx_kernels() {
  static const Kernels table = with_tiles(avx512bf16_kernels());
  return table;
}
#endif
