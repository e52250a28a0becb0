// Attention shared by the threads of a pool.
#pragma once
#include "kernels.h"
#include "pool.h"

namespace helm {

struct Attention {
  size_t heads, kv_heads, head_dim, capacity;
  Format format;

  size_t group() const { return heads / kv_heads; }
  size_t q_width() const { return heads * head_dim; }
  size_t kv_width() const { return kv_heads * head_dim; }
};

// One layer's work: every sequence has `tokens` new rows on top of `past` cached positions, whose keys and
// values are in the cache already. Rows are [batch * tokens][heads * head_dim].
struct AttentionCall {
  const void* keys;    // [batch][kv_heads][capacity][head_dim]
  const void* values;  // same shape
  size_t batch, tokens, past;
  const float* q;
  float* out;
};

// Tokens per piece of a prompt, so that a piece has about kPrefillRows rows (tokens x query heads).
size_t prompt_piece(const Attention& shape, size_t tokens);

// Floats of scratch that each thread needs, whatever the pass.
size_t attention_scratch(const Attention& shape);

// This thread's part. Without a barrier at its end, but with one inside when decode's contexts are cut.
// Decode cuts (sequence, head, 64 positions) evenly over the threads and merges by log-sum-exp.
void attention_share(const Kernels& k, Pool& pool, size_t thread, const Attention& shape,
                     const AttentionCall& call);

}  // namespace helm
