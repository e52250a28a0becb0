// The same products on AVX2 without AVX-VNNI; compiled for AVX2, so nothing but the table may leave this file.
#if defined(__x86_64__)
#include "kernels/simd/avx2.h"
//
#include "kernels/isa.h"
#include "kernels/tables/words_table_impl.h"

const helm::Kernels& helm::avxvnni_emulated_kernels() {
  static const Kernels table = with_words(avx2_kernels(), Simd::name);
  return table;
}
#endif
