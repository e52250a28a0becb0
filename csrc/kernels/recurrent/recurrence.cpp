#include "kernels/recurrent/recurrence.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/division.h"

namespace helm {
namespace {

constexpr size_t kTokensOfState = 4;  // whose work takes as long as reading and writing a state

// Heads of a key head, and columns of each of these, in so many parts; every part is a unit of work.
struct Parts {
  size_t heads, columns;

  size_t count() const { return heads * columns; }
};

// No more than are needed to keep all threads busy: products of keys are computed for every part anew.
Parts parts_of(const RecurrenceShape& shape, size_t runs, size_t threads) {
  const size_t wanted = (threads + runs * shape.key_heads - 1) / (runs * shape.key_heads);
  const size_t heads = std::min(wanted, shape.value_heads / shape.key_heads);
  const size_t blocks = (shape.value_dim + kRecurrenceColumns - 1) / kRecurrenceColumns;
  return {heads, std::min((wanted + heads - 1) / heads, blocks)};
}

RecurrenceArgs args_of(const RecurrenceShape& shape, const RecurrenceRun& run, const Parts& parts, size_t unit,
                       float* scratch) {
  const size_t key_head = unit / parts.count(), part = unit % parts.count(),
               sharing = shape.value_heads / shape.key_heads;
  const Range heads = share_of(sharing, part / parts.columns, parts.heads);
  const size_t blocks = (shape.value_dim + kRecurrenceColumns - 1) / kRecurrenceColumns;
  const Range columns = share_of(blocks, part % parts.columns, parts.columns);
  const size_t step = shape.tiled ? shape.key_heads : 1;
  const size_t h = key_head * (shape.tiled ? 1 : sharing) + heads.begin * step;
  RecurrenceArgs a{};
  a.q = run.q + key_head * shape.key_dim, a.k = run.k + key_head * shape.key_dim, a.key_stride = run.key_stride;
  a.v = run.v + h * shape.value_dim, a.value_stride = run.value_stride;
  a.decay = run.decay + h * (shape.per_dimension ? shape.key_dim : 1), a.decay_stride = run.decay_stride;
  a.rate = run.rate + h, a.rate_stride = run.rate_stride;
  a.skip = run.skip == nullptr ? nullptr : run.skip + h;
  a.out = run.out + h * shape.value_dim, a.out_stride = run.out_stride;
  a.state = run.state + h * shape.key_dim * shape.value_dim;
  a.tokens = run.tokens, a.heads = heads.end - heads.begin, a.head_step = step;
  a.key_dim = shape.key_dim, a.value_dim = shape.value_dim;
  a.first = columns.begin * kRecurrenceColumns, a.last = std::min(shape.value_dim, columns.end * kRecurrenceColumns);
  a.per_dimension = shape.per_dimension, a.corrects = shape.corrects, a.normalised = shape.normalised;
  a.query_scale = shape.query_scale;
  a.scratch = scratch;
  return a;
}

}  // namespace

void check(const RecurrenceShape& shape) {
  if (shape.key_heads == 0 || shape.value_heads == 0 || shape.key_dim == 0 || shape.value_dim == 0)
    throw std::invalid_argument("a recurrence has heads and dimensions");
  if (shape.value_heads % shape.key_heads != 0)
    throw std::invalid_argument("value heads must be a multiple of key heads");
}

void recur_share(const MixerKernels& k, size_t thread, size_t threads, const RecurrenceShape& shape,
                 const RecurrenceRun* runs, size_t count, float* scratch) {
  if (count == 0) return;
  const Parts parts = parts_of(shape, count, threads);
  const size_t units = shape.key_heads * parts.count();
  const auto cost = [&](size_t i) { return runs[i].tokens + kTokensOfState; };
  const Cut begin = cut_of(count, units, thread, threads, cost), end = cut_of(count, units, thread + 1, threads, cost);
  for_items(begin, end, count, units, [&](size_t i, size_t first, size_t last) {
    for (size_t unit = first; unit < last; ++unit) k.recur(args_of(shape, runs[i], parts, unit, scratch));
  });
}

Range channels_of(size_t channels, size_t thread, size_t threads) {
  const Range share = share_of((channels + kPanel - 1) / kPanel, thread, threads);
  return {share.begin * kPanel, std::min(channels, share.end * kPanel)};
}

void convolve_share(const MixerKernels& k, size_t thread, size_t threads, ConvolveArgs args) {
  const Range own = channels_of(args.channels, thread, threads);
  args.first = own.begin, args.last = own.end;
  if (args.first < args.last) k.convolve(args);
}

}  // namespace helm
