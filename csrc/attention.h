// Attention shared by the threads of a pool.
#pragma once
#include <vector>

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

// The keys, or values, of one KV head: of its first sequence, and how many bytes the next is away.
struct HeadCache {
  char* data = nullptr;
  size_t sequence = 0;
};
using HeadCaches = std::vector<HeadCache>;  // by KV head

// KV heads [begin, end) in one buffer [batch][end - begin][capacity * head_dim]; the others have none.
inline HeadCaches caches_in(const Attention& s, void* data, size_t begin, size_t end) {
  const size_t head = s.capacity * s.head_dim * size_of(s.format);
  HeadCaches found(s.kv_heads);
  for (size_t h = begin; h < end; ++h) found[h] = {static_cast<char*>(data) + (h - begin) * head, (end - begin) * head};
  return found;
}

// One layer's work: every sequence has `tokens` new rows on top of `past` cached positions, whose keys and
// values are in the cache already. Rows are [batch * tokens][heads * head_dim].
struct AttentionCall {
  const HeadCache* keys;    // of every KV head: [capacity][head_dim] per sequence
  const HeadCache* values;  // same shape
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
