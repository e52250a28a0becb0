// Attention shared by the threads of a pool.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/kernels.h"
#include "runtime/pool.h"

namespace helm {

struct Attention {
  size_t heads, kv_heads, head_dim, capacity;
  Format format;
  Activations activations = Activations::f32;  // what attention of prompts multiplies: f32, bf16 or int16
  float scale = 0;                             // of products of queries and keys; 0: 1 / sqrt(head_dim)
  float softcap = 0;                           // see Scoring, as `window`
  size_t window = 0;
  const float* sinks = nullptr;  // [heads]: logits that join the softmax, without values; or null

  Scoring scoring() const {
    return {scale > 0 ? scale : 1.0f / std::sqrt(static_cast<float>(head_dim)), softcap, window};
  }
  // The first position that a token at `position` sees.
  size_t sees_from(size_t position) const { return window > 0 && position >= window ? position + 1 - window : 0; }
  size_t group() const { return heads / kv_heads; }
  size_t q_width() const { return heads * head_dim; }
  size_t kv_width() const { return kv_heads * head_dim; }
};

using HeadCaches = std::vector<HeadCache>;  // by KV head

// KV heads [begin, end) in one buffer [batch][end - begin][capacity rows]; the others have none.
inline HeadCaches caches_in(const Attention& s, void* data, size_t begin, size_t end) {
  const size_t head = s.capacity * row_size(s.format, s.head_dim);
  HeadCaches found(s.kv_heads);
  for (size_t h = begin; h < end; ++h) found[h] = {static_cast<char*>(data) + (h - begin) * head, (end - begin) * head};
  return found;
}

// What is left of earlier calls over other spans: of each row (a token of a sequence) and head the largest score and
// the sum of the weights, [rows][heads]; `out` holds the weighted sums meanwhile. The calls of one running state have
// the same rows. A call is exact whatever came before, but for weights that are rounded: dividing at the end
// gives softmax over all spans together.
struct Running {
  float *max, *sum;  // may be null for a call that is first and last
  bool first, last;  // nothing came before; nothing comes after, so that the sums are divided
};

// The positions of a span from `position` on.
inline KvSpan from_position(KvSpan span, size_t position) {
  const size_t left_out = position > span.position ? std::min(position - span.position, span.count) : 0;
  return {span.keys, span.values, span.position + left_out, span.count - left_out, span.first + left_out};
}

// One layer's work: every sequence has `tokens` new rows at positions past, past + 1, ...; each sees the positions of
// the spans up to its own. With a window, spans have no position before that of the first token's. Rows are [batch *
// tokens][heads * head_dim]; one that saw nothing becomes zero.
struct AttentionCall {
  KvSpans spans;
  size_t batch, tokens, past;
  const float* q;
  float* out;
  Running running;
};

// Tokens per piece of a prompt, so that a piece has about kPrefillRows rows (tokens x query heads), or fewer where
// `pairs` of sequences and KV heads would not keep all threads busy; what a row gets does not depend on it.
size_t prompt_piece(const Attention& shape, size_t tokens, size_t pairs, size_t threads);

// Floats of scratch that each thread needs, whatever the pass.
size_t attention_scratch(const Attention& shape);

// This thread's part. Without a barrier at its end, but with one inside when decode's contexts are cut.
// Decode cuts (sequence, head, 64 positions) evenly over the threads and merges by log-sum-exp. Where no thread's share
// ends within a head, calls over spans of whole tiles (256 positions) leave the same bits as one call over all of them.
// Returns whether others may still read this thread's scratch, which is the same for all threads: then a barrier must
// come before the next call.
bool attention_share(const Kernels& k, Pool& pool, size_t thread, const Attention& shape, const AttentionCall& call);

}  // namespace helm
