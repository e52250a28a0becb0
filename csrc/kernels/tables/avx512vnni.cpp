// Products of quantised weights, and of cached codes, with AVX-512's VNNI; all else is AVX-512's. Compiled for them, so
// nothing but the table may leave this file.
#if defined(__x86_64__)
#include "kernels/simd/avx512.h"
//
#include "kernels/attention/attention_words_impl.h"
#include "kernels/isa.h"
#include "kernels/tables/words_table_impl.h"

const helm::Kernels& helm::avx512vnni_kernels() {
  static const Kernels table = with_prompt_words(with_words(avx512_kernels(), Simd::name));
  return table;
}
#endif
