// A table with the kernels that multiply whole numbers, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/attention/attention_decode_impl.h"
#include "kernels/linear/code_tiles_impl.h"
#include "kernels/linear/peak_impl.h"

namespace helm {
namespace {

inline Kernels with_words(Kernels table, const char* name) {
  table.name = name;
  table.word_product = Simd::word_product;
  table.byte_most = Simd::byte_most;
  table.linear_words = linear_words;
  table.pack_words = pack_words;
  table.linear_bytes = linear_bytes;
  table.pack_bytes = pack_bytes;
  table.decode = decode;
  table.peak_words = kPeakWords;
  table.peak_bytes = kPeakBytes;
  return table;
}

}  // namespace
}  // namespace helm
