// Kernels for AVX2, FMA and F16C; compiled for them, so nothing but the table may leave this file.
#if defined(__x86_64__)
#include "kernels/simd/avx2.h"
//
#include "kernels/attention/attention_words_impl.h"
#include "kernels/isa.h"
#include "kernels/tables/table_impl.h"

const helm::Kernels& helm::avx2_kernels() {
  static constexpr Kernels table = with_prompt_words(table_by_name(avx2_mixers));
  return table;
}
#endif
