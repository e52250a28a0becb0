// Products of quantised weights, and of cached codes, with AVX-512's VNNI; all else is AVX-512's. Compiled for them, so
// nothing but the table may leave this file.
#if defined(__x86_64__)
#include "simd_avx512.h"
//
#include "attention_decode_impl.h"
#include "isa.h"
#include "peak_impl.h"
#include "code_tiles_impl.h"

namespace {

helm::Kernels with_words(helm::Kernels table) {
  table.name = helm::Simd::name;
  table.word_product = helm::Simd::word_product;
  table.linear_words = helm::linear_words;
  table.byte_most = helm::Simd::byte_most;
  table.pack_words = helm::pack_words;
  table.linear_bytes = helm::linear_bytes;
  table.pack_bytes = helm::pack_bytes;
  table.decode = helm::decode;
  table.peak_words = helm::kPeakWords;
  table.peak_bytes = helm::kPeakBytes;
  return table;
}

}  // namespace

const helm::Kernels& helm::avx512vnni_kernels() {
  static const Kernels table = with_words(avx512_kernels());
  return table;
}
#endif
