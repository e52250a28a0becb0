#include "kernels/attention/attention.h"

#include <algorithm>
#include <cmath>

namespace helm {
namespace {

constexpr size_t kChunk = 64;  // positions: the grain in which decode is cut over threads

// What a thread leaves behind for one (sequence, head) pair that it shares with others.
struct Partial {
  float *out, *max, *sum;  // [group][head_dim], [group], [group]
};

size_t partial_floats(const Attention& s) { return round_up(s.group() * (s.head_dim + 2), kPanel); }

Partial partial_at(const Attention& s, float* scratch, size_t index) {
  float* out = scratch + index * partial_floats(s);
  return {out, out + s.group() * s.head_dim, out + s.group() * (s.head_dim + 1)};
}

// Where the query heads of (sequence, head) pair `pair` start, in q and in out, when every sequence has one row.
size_t decode_row(const Attention& s, size_t pair) { return pair * s.group() * s.head_dim; }

void copy(const Attention& s, const Partial& from, const Partial& to) {
  std::copy_n(from.out, s.group() * s.head_dim, to.out);
  std::copy_n(from.max, s.group(), to.max);
  std::copy_n(from.sum, s.group(), to.sum);
}

// What earlier calls left of a pair, or this one leaves to later ones.
Partial running_at(const Attention& s, const AttentionCall& c, size_t pair) {
  return {c.out + decode_row(s, pair), c.running.max + pair * s.group(), c.running.sum + pair * s.group()};
}

void divide(const Kernels& k, const Attention& s, const Partial& p, float* out) {
  for (size_t g = 0; g < s.group(); ++g) {
    std::copy_n(p.out + g * s.head_dim, s.head_dim, out + g * s.head_dim);
    k.scale(out + g * s.head_dim, p.sum[g] > 0 ? 1.0f / p.sum[g] : 0.0f, s.head_dim);
  }
}

// What nothing came before: each head's sink has a weight, and no value.
void begin_with_sinks(const Attention& s, size_t kv_head, const Partial& p) {
  std::fill_n(p.out, s.group() * s.head_dim, 0.0f);
  std::copy_n(s.sinks + kv_head * s.group(), s.group(), p.max);
  std::fill_n(p.sum, s.group(), 1.0f);
}

// All of a pair's positions are in p.
void finish(const Kernels& k, const Attention& s, const AttentionCall& c, size_t pair, const Partial& p) {
  c.running.last ? divide(k, s, p, c.out + decode_row(s, pair)) : copy(s, p, running_at(s, c, pair));
}

// into = both, exactly: the larger maximum is kept, the other's weights are rescaled (log-sum-exp).
void merge(const Attention& s, const Partial& into, const Partial& from) {
  for (size_t g = 0; g < s.group(); ++g) {
    const float max = std::max(into.max[g], from.max[g]);
    const float a = std::exp(into.max[g] - max), b = std::exp(from.max[g] - max);
    for (size_t d = g * s.head_dim; d < (g + 1) * s.head_dim; ++d) into.out[d] = into.out[d] * a + from.out[d] * b;
    into.sum[g] = into.sum[g] * a + from.sum[g] * b;
    into.max[g] = max;
  }
}

struct Cut {
  size_t context, chunks, pairs, threads;

  Range share(size_t thread) const { return share_of(pairs * chunks, thread, threads); }
  // Whether some pair is computed by more than one thread.
  bool splits() const {
    for (size_t t = 1; t < threads; ++t)
      if (share(t).begin % chunks != 0) return true;
    return false;
  }
};

Cut cut_of(const Attention& s, const AttentionCall& c, size_t threads) {
  size_t context = 0;
  for (const KvSpan& span : c.spans) context += seen(span, c.past + c.tokens);
  return {context, std::max<size_t>(1, (context + kChunk - 1) / kChunk), c.batch * s.kv_heads, threads};
}

// Partial 0 is of the pair that the share begins with, partial 1 of any later one: only the last of those can
// be unfinished, so one place is enough.
void decode_range(const Kernels& k, const Attention& s, const AttentionCall& c, const Cut& cut, Range share,
                  float* scratch) {
  for (size_t unit = share.begin; unit < share.end;) {
    const size_t pair = unit / cut.chunks, first = unit % cut.chunks;
    const size_t last = std::min(cut.chunks, first + share.end - unit);
    const Partial p = partial_at(s, scratch, unit == share.begin ? 0 : 1);
    const bool sinks = first == 0 && c.running.first && s.sinks != nullptr;
    const bool resume = sinks || (first == 0 && !c.running.first), goes_on = unit + last - first < share.end;
    if (sinks)
      begin_with_sinks(s, pair % s.kv_heads, p);
    else if (resume)
      copy(s, running_at(s, c, pair), p);
    k.decode({s.format, c.spans, c.past + c.tokens, pair / s.kv_heads, pair % s.kv_heads, first * kChunk,
              std::min(cut.context, last * kChunk), s.head_dim, s.group(), c.q + decode_row(s, pair), resume, p.out,
              p.max, p.sum, scratch + 2 * partial_floats(s), goes_on && pair % s.kv_heads + 1 < s.kv_heads,
              s.scoring()});
    if (first == 0 && last == cut.chunks) finish(k, s, c, pair, p);
    unit += last - first;
  }
}

// The thread that holds the first chunk of a cut pair merges the pair's partials.
void merge_range(const Kernels& k, Pool& pool, const Attention& s, const AttentionCall& c, const Cut& cut,
                 size_t thread) {
  const Range share = cut.share(thread);
  if (share.begin == share.end || share.end % cut.chunks == 0) return;
  const size_t pair = share.end / cut.chunks, start = pair * cut.chunks;
  if (start < share.begin) return;
  const Partial mine = partial_at(s, pool.scratch(thread), start == share.begin ? 0 : 1);
  for (size_t t = thread + 1; t < cut.threads && cut.share(t).begin < start + cut.chunks; ++t)
    if (cut.share(t).begin < cut.share(t).end) merge(s, mine, partial_at(s, pool.scratch(t), 0));
  finish(k, s, c, pair, mine);
}

// The kernel that multiplies such factors; f32 is at least as precise.
auto prefill_of(const Kernels& k, Activations activations) {
  const auto units = activations == Activations::bf16    ? k.prefill_pairs
                     : activations == Activations::int16 ? k.prefill_words
                                                         : nullptr;
  return units != nullptr ? units : k.prefill;
}

// Pieces of a head are next to each other, so that its keys and values are in a cache for all but the first. Later
// tokens see more positions: pieces of a head are taken from the last to the first.
void prefill_share(const Kernels& k, Pool& pool, size_t thread, const Attention& s, const AttentionCall& c) {
  const size_t pairs = c.batch * s.kv_heads, piece = prompt_piece(s, c.tokens, pairs, pool.threads());
  const size_t pieces = (c.tokens + piece - 1) / piece;
  const auto run = prefill_of(k, s.activations);
  const auto one = [&](size_t item) {
    const size_t pair = item / pieces, first = (pieces - 1 - item % pieces) * piece;
    const size_t head = pair / s.kv_heads * c.tokens * s.heads + pair % s.kv_heads * s.group();
    const size_t row = head * s.head_dim;
    const auto left = [head](float* running) { return running == nullptr ? nullptr : running + head; };
    run({s.format,
         c.spans,
         c.past,
         pair / s.kv_heads,
         pair % s.kv_heads,
         first,
         std::min(c.tokens, first + piece),
         s.head_dim,
         s.group(),
         c.q + row,
         c.out + row,
         s.q_width(),
         !c.running.first,
         c.running.last,
         left(c.running.max),
         left(c.running.sum),
         s.heads,
         s.activations,
         pool.scratch(thread),
         s.scoring(),
         s.sinks != nullptr && c.running.first ? s.sinks + pair % s.kv_heads * s.group() : nullptr});
  };
  pool.divide(thread, pairs * pieces, 1, 1, [&](Range taken) {
    for (size_t item = taken.begin; item < taken.end; ++item) one(item);
  });
}

}  // namespace

// Two pieces a thread, as later ones take longer; none smaller than a panel of rows.
size_t prompt_piece(const Attention& s, size_t tokens, size_t pairs, size_t threads) {
  const size_t rows = tokens * s.group(), most = (rows + kMostRowsTogether - 1) / kMostRowsTogether;
  const size_t least = (rows + kPrefillRows - 1) / kPrefillRows, busy = (2 * threads + pairs - 1) / pairs;
  const size_t pieces = std::max(least, std::min(most, busy));
  return std::max<size_t>(1, (tokens + pieces - 1) / pieces);
}

size_t attention_scratch(const Attention& s) {
  const size_t decode = 2 * partial_floats(s) + decode_scratch(s.head_dim, s.group());
  return std::max(decode, prefill_scratch(s.head_dim, kPrefillRows + s.group()));
}

bool attention_share(const Kernels& k, Pool& pool, size_t thread, const Attention& s, const AttentionCall& c) {
  if (c.tokens > 1) {
    prefill_share(k, pool, thread, s, c);
    return false;
  }
  const Cut cut = cut_of(s, c, pool.threads());
  decode_range(k, s, c, cut, cut.share(thread), pool.scratch(thread));
  if (!cut.splits()) return false;
  pool.barrier();
  merge_range(k, pool, s, c, cut, thread);
  return true;
}

}  // namespace helm
