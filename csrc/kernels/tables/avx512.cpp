// Kernels for AVX-512 F, BW, DQ and VL; compiled for them, so nothing but the table may leave this file.
#if defined(__x86_64__)
#include "kernels/simd/avx512.h"
//
#include "kernels/isa.h"
#include "kernels/tables/table_impl.h"

const helm::Kernels& helm::avx512_kernels() {
  static constexpr Kernels table = table_by_name(avx512_mixers);
  return table;
}
#endif
