// The table of the instruction set whose Simd was included before.
#pragma once
#include "kernels/attention/attention_decode_impl.h"
#include "kernels/attention/attention_divided_impl.h"
#include "kernels/attention/attention_floats_impl.h"
#include "kernels/cache/cache_rows_impl.h"
#include "kernels/linear/peak_impl.h"
#include "kernels/linear/code_tiles_impl.h"

namespace helm {
namespace {

// Kernels of BF16 units are null: tables that have them add them.
constexpr Kernels table_by_name(const MixerKernels& (*mixers)()) {
  Kernels table{};
  table.name = Simd::name;
  table.stream_tokens = table.pair_stream_tokens = Simd::stream_tokens;
  table.code_stream_tokens = Simd::code_stream_tokens;
  table.stream_block = Simd::stream_block;
  table.product_block = Simd::product_block;
  table.word_product = Simd::word_product;
  table.byte_most = Simd::byte_most;
  table.linear = linear;
  table.linear_words = linear_words;
  table.pack_words = pack_words;
  table.linear_bytes = linear_bytes;
  table.pack_bytes = pack_bytes;
  table.pack_x = pack_x;
  table.decode = decode;
  table.prefill = prefill;
  table.scores = divided_scores;
  table.scores_prompt = scores_prompt;
  table.softmax = softmax;
  table.weighted = divided_weighted;
  table.weighted_prompt = weighted_prompt;
  table.norm = norm;
  table.rope = rope;
  table.activate = activate;
  table.add = add;
  table.scale = scale;
  table.widen = widen;
  table.narrow = narrow;
  table.expand = expand;
  table.compress_row = compress_row;
  table.write_row = write_row;
  table.turn_rows = turn_rows;
  table.argmax = argmax;
  table.read = read;
  table.peak_floats = kPeakFloats;
  table.peak_words = kPeakWords;
  table.peak_bytes = kPeakBytes;
  table.mixers = mixers;
  return table;
}

}  // namespace
}  // namespace helm
