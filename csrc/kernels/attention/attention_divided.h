// Divided attention shared by the threads of a pool: scores, softmax and weighted sum as three operations.
#pragma once
#include "kernels/attention/attention.h"

namespace helm {

// Floats between the scores of two heads: the capacity in whole panels.
inline size_t scores_stride(const Attention& shape) { return round_up(shape.capacity, kPanel); }

// One layer's work, as in AttentionCall, but with scores in memory and keys transposed.
struct DividedCall {
  const HeadCache* keys;    // of the KV heads: [head_dim][capacity] per sequence; scores only
  const HeadCache* values;  // of the KV heads: [capacity][head_dim] per sequence; weighted sum only
  size_t batch, tokens, past;
  Range kv_heads;  // which of them scores and the weighted sum compute; softmax always takes all
  const float* q;
  float* scores;  // [batch * tokens][heads][scores_stride]
  float* out;     // [batch * tokens][heads * head_dim]
};

// This thread's part of each, without a barrier. Decode cuts (sequence, head) pairs by 64 positions for scores and by
// 32 columns for the weighted sum; no result depends on the cut. attention_scratch covers what they need.
void scores_share(const Kernels& k, Pool& pool, size_t thread, const Attention& shape, const DividedCall& call);
// scores become weights: scaled by the shape's factor (caps, windows and sinks are left out), and zero from each
// token's own future to the context's end.
void softmax_share(const Kernels& k, Pool& pool, size_t thread, const Attention& shape, const DividedCall& call);
void weighted_share(const Kernels& k, Pool& pool, size_t thread, const Attention& shape, const DividedCall& call);

}  // namespace helm
