// Products of quantised weights, and of cached codes, with AVX-VNNI; all else is AVX2's. Compiled for them, so nothing
// but the table may leave this file.
#if defined(__x86_64__)
#include "kernels/simd/avx2.h"
//
#include "kernels/attention/attention_words_impl.h"
#include "kernels/isa.h"
#include "kernels/tables/words_table_impl.h"

const helm::Kernels& helm::avxvnni_kernels() {
  static const Kernels table = with_prompt_words(with_words(avx2_kernels(), Simd::name));
  return table;
}
#endif
