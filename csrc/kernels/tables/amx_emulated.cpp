// The same products by tiles in plain C++, all else is AVX2's; compiled for AVX2, so nothing but the table may leave
// this file.
#if defined(__x86_64__)
#include "kernels/simd/avx2.h"
#include "kernels/simd/tiles_emulated.h"
//
#include "kernels/isa.h"
#include "kernels/tables/tiles_table_impl.h"

const helm::Kernels& helm::amx_emulated_kernels() {
  static const Kernels table = with_tiles(avx2_kernels());
  return table;
}
#endif
