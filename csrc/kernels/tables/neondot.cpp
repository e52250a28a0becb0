// Products of quantised weights with NEON's dot products; all else is NEON's. Compiled for them, so nothing but the
// table may leave this file.
#if defined(__aarch64__)
#include "kernels/simd/neon.h"
//
#include "kernels/isa.h"
#include "kernels/tables/words_table_impl.h"

const helm::Kernels& helm::neondot_kernels() {
  static const Kernels table = with_words(neon_kernels(), "neondot");
  return table;
}
#endif
