#include "kernels/attention/attention_divided.h"

#include <algorithm>
#include <cmath>

namespace helm {
namespace {

constexpr size_t kPositions = 64;  // the grain in which decode's scores are cut over threads
constexpr size_t kColumns = 32;    // and its weighted sum: whole cache lines of f16

// A (sequence, KV head) pair and where its things are.
struct Pair {
  size_t sequence, kv_head;

  const void* in(const HeadCache* caches) const { return caches[kv_head].data + sequence * caches[kv_head].sequence; }
  size_t row(const Attention& s, size_t tokens) const {  // floats of q and out
    return sequence * tokens * s.q_width() + kv_head * s.group() * s.head_dim;
  }
  size_t scores(const Attention& s, size_t tokens) const {  // floats
    return (sequence * tokens * s.heads + kv_head * s.group()) * scores_stride(s);
  }
};

Pair pair_at(const DividedCall& c, size_t index) {
  const size_t heads = c.kv_heads.end - c.kv_heads.begin;
  return {index / heads, c.kv_heads.begin + index % heads};
}

size_t pairs_of(const DividedCall& c) { return c.batch * (c.kv_heads.end - c.kv_heads.begin); }

// piece(pair, first, last) for this thread's units of [pairs][units]: units that follow each other in one piece.
template <class Piece>
void for_pieces(const DividedCall& c, size_t units, size_t thread, size_t threads, const Piece& piece) {
  const Range share = share_of(pairs_of(c) * units, thread, threads);
  for (size_t unit = share.begin; unit < share.end;) {
    const size_t first = unit % units, last = std::min(units, first + share.end - unit);
    piece(pair_at(c, unit / units), first, last);
    unit += last - first;
  }
}

// prompt(args, pair) for this thread's pieces of the tokens. Later tokens see more: dealt from the last to the first.
template <class Prompt>
void for_prompt(Pool& pool, size_t thread, const Attention& s, const DividedCall& c, const HeadCache* caches,
                const Prompt& prompt) {
  const size_t pairs = pairs_of(c), piece = prompt_piece(s, c.tokens, pairs, pool.threads());
  const size_t pieces = (c.tokens + piece - 1) / piece;
  for (size_t item = thread; item < pairs * pieces; item += pool.threads()) {
    const Pair pair = pair_at(c, item % pairs);
    const size_t first = (pieces - 1 - item / pairs) * piece, row = pair.row(s, c.tokens);
    prompt({s.format, pair.in(caches), s.capacity, c.past, first, std::min(c.tokens, first + piece), s.head_dim,
            s.group(), c.q + row, c.scores + pair.scores(s, c.tokens), scores_stride(s), s.heads * scores_stride(s),
            c.out + row, s.q_width(), pool.scratch(thread)});
  }
}

}  // namespace

void scores_share(const Kernels& k, Pool& pool, size_t thread, const Attention& s, const DividedCall& c) {
  if (c.tokens > 1) return for_prompt(pool, thread, s, c, c.keys, k.scores_prompt);
  const size_t context = c.past + 1, units = (context + kPositions - 1) / kPositions;
  for_pieces(c, units, thread, pool.threads(), [&](const Pair& pair, size_t first, size_t last) {
    k.scores({s.format, pair.in(c.keys), s.capacity, s.head_dim, s.group(), first * kPositions,
              std::min(context, last * kPositions), c.q + pair.row(s, 1), c.scores + pair.scores(s, 1),
              scores_stride(s)});
  });
}

void softmax_share(const Kernels& k, Pool& pool, size_t thread, const Attention& s, const DividedCall& c) {
  const float factor = s.scoring().factor;
  const size_t end = round_up(c.past + c.tokens, kPanel);
  const Range share = share_of(c.batch * c.tokens * s.heads, thread, pool.threads());
  for (size_t item = share.begin; item < share.end; ++item) {
    float* x = c.scores + item * scores_stride(s);
    const size_t visible = c.past + item / s.heads % c.tokens + 1;
    k.softmax(x, visible, factor);
    std::fill(x + visible, x + end, 0.0f);
  }
}

void weighted_share(const Kernels& k, Pool& pool, size_t thread, const Attention& s, const DividedCall& c) {
  if (c.tokens > 1) return for_prompt(pool, thread, s, c, c.values, k.weighted_prompt);
  const size_t units = (s.head_dim + kColumns - 1) / kColumns;
  for_pieces(c, units, thread, pool.threads(), [&](const Pair& pair, size_t first, size_t last) {
    k.weighted({s.format, pair.in(c.values), c.past + 1, s.head_dim, s.group(), first * kColumns,
                std::min(s.head_dim, last * kColumns), c.scores + pair.scores(s, 1), scores_stride(s),
                c.out + pair.row(s, 1)});
  });
}

}  // namespace helm
