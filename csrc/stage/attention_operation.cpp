#include "stage/attention_operation.h"

#include <algorithm>

#include "kernels/attention/attention_divided.h"
#include "kernels/mixers.h"
#include "stage/stage_pass.h"

namespace helm {

void AttentionOperation::check(const StageSpec& spec) const {
  check_shape(shape);
  check_ring(spec, shape);
  expect(!spec.paged || shape.window == 0, "attention over a window does not go over pages in several calls");
  expect(reads[0].width == shape.q_width() && leaves[0].width == shape.q_width(),
         "queries and outputs of attention are of other widths than their heads");
  if (reads.size() == 1) return;
  expect(reads[1].width == 2 * shape.q_width(), "queries with gates are twice as wide as without");
  expect(!spec.paged, "attention with gates does not go over pages in several calls");
}

void AttentionOperation::run(StagePass& pass) const {
  if (pass.io().ragged != nullptr) return each_sequence(pass);
  const size_t past = pass.io().past + pass.first();
  KvSpan spans[2];  // of a ring that wraps
  const KvSpans seen{spans, ring_spans(shape.sees_from(past), past + pass.count(), spans)};
  attention_share(pass.k(), pass.pool(), pass.thread(), shape,
                  {seen, pass.batch(), pass.count(), past, reads[0].at, leaves[0].at, {nullptr, nullptr, true, true}});
  if (reads.size() > 1) gate(pass);
  pass.done_by_all();
}

void AttentionOperation::gate(StagePass& pass) const {
  pass.barrier();
  const size_t head_dim = shape.head_dim;
  const Range share = pass.mine(pass.rows() * shape.heads);
  for (size_t item = share.begin; item < share.end; ++item)
    pass.k().mixers().gate(GateKind::sigmoid, leaves[0].at + item * head_dim, reads[1].at + (2 * item + 1) * head_dim,
                           head_dim);
}

size_t AttentionOperation::ring_spans(size_t begin, size_t end, KvSpan* spans) const {
  size_t count = 0;
  while (begin < end) {
    const size_t row = begin % shape.capacity, rows = std::min(end - begin, shape.capacity - row);
    spans[count++] = {caches.keys.data(), caches.values.data(), begin, rows, row};
    begin += rows;
  }
  return count;
}

// A sequence at a time, so that what it gets does not depend on the others.
void AttentionOperation::each_sequence(StagePass& pass) const {
  const size_t width = shape.q_width(), own = shape.capacity;
  const Ragged& ragged = *pass.io().ragged;
  std::vector<KvSpan>& spans = pass.spans();
  for (const RaggedSequence& s : ragged.sequences) {
    spans.clear();
    for (const CacheRun* run = ragged.runs_of(s); run < ragged.runs_of(s) + s.runs; ++run) {
      const KvSpan whole = run->row < own
                               ? KvSpan{caches.keys.data(), caches.values.data(), run->position, run->count, run->row}
                               : KvSpan{caches.passing_keys.data(), caches.passing_values.data(), run->position,
                                        run->count, run->row - own};
      const KvSpan seen = from_position(whole, shape.sees_from(s.past));
      if (seen.count > 0) spans.push_back(seen);
    }
    const AttentionCall call{{spans.data(), spans.size()},
                             1,
                             s.tokens,
                             s.past,
                             reads[0].at + s.first * width,
                             leaves[0].at + s.first * width,
                             {nullptr, nullptr, true, true}};
    if (attention_share(pass.k(), pass.pool(), pass.thread(), shape, call)) pass.barrier();
  }
  if (reads.size() > 1) gate(pass);
  pass.done_by_all();
}

void DividedOperation::check(const StageSpec&) const {
  check_shape(shape);
  expect(shape.window == 0 && shape.softcap == 0 && shape.sinks == nullptr,
         "divided attention has neither windows nor caps nor sinks");
  expect(heads.begin < heads.end && heads.end <= shape.kv_heads,
         name + "_heads [" + std::to_string(heads.begin) + ", " + std::to_string(heads.end) + ") are not among " +
             std::to_string(shape.kv_heads) + " KV heads");
}

bool DividedOperation::present() const {
  if (part == Part::softmax) return true;
  return cover(part == Part::scores ? caches.keys : caches.values, heads.begin, heads.end);
}

void DividedOperation::run(StagePass& pass) const {
  const auto share = part == Part::scores ? scores_share : part == Part::weighted ? weighted_share : softmax_share;
  const bool first = part == Part::scores, last = part == Part::weighted;
  share(pass.k(), pass.pool(), pass.thread(), shape,
        {caches.keys.data(), caches.values.data(), pass.batch(), pass.count(), pass.io().past + pass.first(), heads,
         first ? reads[0].at : nullptr, first ? leaves[0].at : reads[0].at, last ? leaves[0].at : nullptr});
  pass.done_by_all();
}

}  // namespace helm
