// The table of the instruction set whose Simd was included before.
#pragma once
#include "attention_decode_impl.h"
#include "attention_divided_impl.h"
#include "attention_floats_impl.h"
#include "cache_rows_impl.h"
#include "peak_impl.h"
#include "code_tiles_impl.h"

namespace helm {
namespace {

const Kernels kTable = {Simd::name,
                        Simd::stream_tokens,
                        Simd::code_stream_tokens,
                        Simd::stream_block,
                        Simd::product_block,
                        Simd::word_product,
                        Simd::byte_most,
                        linear,
                        linear_words,
                        pack_words,
                        linear_bytes,
                        pack_bytes,
                        nullptr,
                        nullptr,
                        pack_x,
                        decode,
                        prefill,
                        nullptr,
                        divided_scores,
                        scores_prompt,
                        softmax,
                        divided_weighted,
                        weighted_prompt,
                        norm,
                        rope,
                        activate,
                        add,
                        scale,
                        widen,
                        narrow,
                        expand,
                        compress_row,
                        write_row,
                        turn_rows,
                        argmax,
                        read,
                        kPeakFloats,
                        kPeakWords,
                        kPeakBytes,
                        {0, nullptr}};

}  // namespace
}  // namespace helm
