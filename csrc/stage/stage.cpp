#include "stage/stage.h"

#include <algorithm>
#include <stdexcept>

#include "stage/embedding_operation.h"
#include "stage/order.h"
#include "stage/stage_pass.h"

namespace helm {

Stage::Stage(Pool& pool, StageSpec spec, void* workspace, size_t first_layer)
    : pool_(pool),
      spec_(std::move(spec)),
      layout_(spec_),
      base_(static_cast<float*>(workspace)),
      alone_(cuts(spec_)),
      seconds_(spec_.operations.size()),
      best_(pool.threads() * outputs_of(spec_)),
      spans_(pool.threads()) {
  layout_.place(spec_, base_);
  share_values(spec_);
  const Value hidden{"hidden", spec_.hidden}, normed{"normed", spec_.hidden};
  regions_ = {{hidden.name, layout_.region(0, hidden)}, {normed.name, layout_.region(0, normed)}};
  size_t scratch = linear_scratch(spec_.hidden) + spec_.hidden;
  for (size_t i = 0; i < spec_.operations.size(); ++i) {
    const Operation& each = op(i);
    index_.emplace(each.title(), i);
    ops_.push_back(each.block ? std::to_string(first_layer + *each.block) + "." + each.name : each.name);
    scratch = std::max(scratch, each.scratch(spec_));
    for (const std::vector<Value>* side : {&each.reads, &each.leaves})
      for (const Value& value : *side)
        if (value.area() != Area::logits)
          add_region(value.name, std::to_string(first_layer + each.block.value_or(0)) + "." + value.name,
                     layout_.region(i, value));
  }
  pool_.reserve(scratch);
}

void Stage::add_region(const std::string& name, const std::string& title, const Region& region) {
  const auto known =
      std::find_if(regions_.begin(), regions_.end(), [&](const auto& each) { return each.first == name; });
  if (known == regions_.end()) return regions_.emplace_back(name, region), void();
  if (known->second == region) return;
  uniform_ = false;
  if (std::none_of(regions_.begin(), regions_.end(), [&](const auto& each) { return each.first == title; }))
    regions_.emplace_back(title, region);
}

const EmbeddingOperation* Stage::embedding() const {
  for (const auto& each : spec_.operations)
    if (const auto* embedding = dynamic_cast<const EmbeddingOperation*>(each.get())) return embedding;
  return nullptr;
}

void Stage::check_range(bool source, bool target, size_t tokens, size_t first, size_t last) const {
  if (first >= last || last > count())
    throw std::invalid_argument("there is no range of operations [" + std::to_string(first) + ", " +
                                std::to_string(last) + ") among " + std::to_string(count()));
  for (size_t i = first; i < last; ++i)
    if (!op(i).present()) throw std::invalid_argument("this stage has nothing to run " + ops_[i] + " with");
  if (embeds(first) && !source) throw std::invalid_argument("the embedding needs a source of token ids");
  if (tokens <= chunk_tokens(spec_)) return;
  const bool kept = source && alone_[first] && alone_[last];
  if (!kept || (!target && !chooses(last)))
    throw std::invalid_argument("tokens (" + std::to_string(tokens) + ") pass in chunks of " +
                                std::to_string(chunk_tokens(spec_)) +
                                ", so activations cannot stay in the workspace: give "
                                "source and target, and cut only where the hidden states are all there is, or let "
                                "chunks pass in calls of their own");
}

size_t Stage::positions(size_t first, size_t last) const {
  for (size_t i = first; i < last; ++i)
    if (op(i).contiguous()) return spec_.capacity;
  return spec_.context;
}

void Stage::check_attend(size_t block, size_t tokens, size_t past) const {
  if (!spec_.paged) throw std::invalid_argument("only the attention of a paged stage is done over spans");
  spec_.attention(block);
  if (tokens > std::min(spec_.max_tokens, chunk_tokens(spec_)) || past + tokens > spec_.context)
    throw std::invalid_argument("the workspace has no " + std::to_string(tokens) + " tokens after " +
                                std::to_string(past) + ": at most " +
                                std::to_string(std::min(spec_.max_tokens, chunk_tokens(spec_))) +
                                " pass at a time, of " + std::to_string(spec_.context));
}

void Stage::attend(size_t block, const KvSpans& spans, bool first, bool last, size_t tokens, size_t past) {
  const Running running{base_ + layout_.running_max(), base_ + layout_.running_sum(), first, last};
  const Operation& attention = spec_.attention(block);
  auto work = [&](size_t thread) {
    attention_share(kernels(), pool_, thread, *attention.attention(),
                    {spans, spec_.batch, tokens, past, attention.reads[0].at, attention.leaves[0].at, running});
  };
  pool_.run(work);
}

size_t Stage::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? count() : found->second;
}

size_t Stage::within(const char* name, size_t block) const {
  const size_t own = find(name, block);
  if (own < count()) return own;
  const auto& ops = spec_.operations;
  const auto last = std::find_if(ops.rbegin(), ops.rend(), [&](const auto& each) { return each->block == block; });
  return static_cast<size_t>(ops.rend() - last);
}

void Stage::check_ragged(const Ragged& rows, size_t count, bool ids, size_t first, size_t last) const {
  if (spec_.sequences == 0)
    throw std::invalid_argument("only a stage for ragged passes runs rows of several sequences");
  const auto expect = [](const char* what, size_t value, size_t most) {
    if (value > most)
      throw std::invalid_argument(std::string(what) + " (" + std::to_string(value) + ") exceed " +
                                  std::to_string(most));
  };
  expect("rows", count, std::min(rows.rows(), spec_.max_tokens));
  if (chooses(last)) expect("outputs", rows.outputs.size(), spec_.sequences);
  expect("rows of caches", rows.caches, spec_.capacity + spec_.passing);
  for (const size_t position : rows.positions) expect("positions", position + 1, spec_.context);
  for (size_t i = first; i < std::min(last, this->count()); ++i)
    for (const RaggedSequence& sequence : rows.sequences) expect("slots of states", sequence.slot + 1, op(i).kept());
  check_range(ids, false, count, first, last);
}

void Stage::run_ragged(const Ragged& rows, size_t count, const int32_t* ids, int32_t* chosen, size_t first, size_t last,
                       double* stamps) {
  size_t runs = 0;
  for (const RaggedSequence& sequence : rows.sequences) runs = std::max(runs, sequence.runs);
  for (auto& spans : spans_) spans.reserve(runs);  // here: what a thread of the pool throws ends the process
  run({embeds(first) ? ids : nullptr, chooses(last) ? chosen : nullptr, count, 0, first, last, true, &rows}, {0, count},
      stamps);
}

void Stage::run(const void* source, void* target, size_t tokens, size_t past, Range own, size_t first, size_t last,
                double* stamps) {
  const bool part = last - first < count() || (op(last - 1).of_outputs() && !chooses(last));
  run({source, target, tokens, past, first, last, part, nullptr}, own, stamps);
}

void Stage::run(const StageIo& io, Range own, double* stamps) {
  const size_t first = io.begin, last = io.end, chunk = chunk_tokens(spec_);
  std::fill(seconds_.begin() + first, seconds_.begin() + last, 0.0);
  auto work = [&](size_t thread) {
    StagePass pass(*this, io, thread);
    if (thread == 0) stamps[0] = pass.started();
    for (size_t begin = own.begin; begin < own.end; begin += chunk) pass.chunk(begin, std::min(chunk, own.end - begin));
  };
  pool_.run(work);
  for (size_t i = first; i < last; ++i) stamps[i - first + 1] = stamps[i - first] + seconds_[i];
}

}  // namespace helm
