// The table of the instruction set whose Simd was included before.
#pragma once
#include "attention_impl.h"

namespace helm {
namespace {

const Kernels kTable = {Simd::name, Simd::stream_tokens, Simd::stream_block, Simd::product_block,
                        linear,     pack_x,              decode,             prefill,
                        norm,       rope,                activate,           add,
                        scale,      widen,               narrow,             argmax,
                        read};

}  // namespace
}  // namespace helm
