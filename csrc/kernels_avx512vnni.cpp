// Products of quantised weights with AVX-512 VNNI; all else is AVX-512's. Compiled for it, so nothing but the table may
// leave this file.
#if defined(__x86_64__)
#include "simd_avx512.h"
//
#include "isa.h"
#include "words_impl.h"

namespace {

helm::Kernels with_words(helm::Kernels table) {
  table.name = "avx512vnni";
  table.word_product = true;
  table.linear_words = helm::linear_words;
  table.pack_words = helm::pack_words;
  return table;
}

}  // namespace

const helm::Kernels& helm::avx512vnni_kernels() {
  static const Kernels table = with_words(avx512_kernels());
  return table;
}
#endif
