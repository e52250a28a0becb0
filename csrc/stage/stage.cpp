#include "stage/stage.h"

#include <algorithm>

#include "kernels/isa.h"
#include "formats/shape.h"
#include "stage/stage_pass.h"

namespace helm {
namespace {

size_t chunk_rows(const StageSpec& s) {
  if (s.sequences > 0) return s.max_tokens;
  return product({s.batch, std::min(s.max_tokens, std::max<size_t>(1, kChunkRows / s.batch))});
}

struct Sizes {
  size_t hidden, wide, inner, packed, logits, scores, running;  // floats, multiples of 16
};

Sizes sizes_of(const StageSpec& s) {
  const size_t rows = chunk_rows(s), q = s.attention.q_width(), kv = s.attention.kv_width();
  const auto region = [](size_t count, size_t width) { return round_up(product({count, width}), 16); };
  return {region(rows, s.hidden),
          region(rows, std::max(s.hidden, q)),
          region(rows, std::max(q + 2 * kv, 2 * s.ffn)),
          region(rows, std::max({input_size(s.hidden), input_size(q), input_size(s.ffn)})),
          region(s.sequences > 0 ? s.sequences : s.batch, s.vocab),
          s.divided ? product({rows, s.attention.heads, scores_stride(s.attention)}) : 0,
          s.paged ? region(rows, 2 * s.attention.heads) : 0};
}

// What is in a region has a fixed place, however many rows a pass has: stages exchange rows.
Workspace workspace_at(const StageSpec& s, float* base) {
  const Sizes r = sizes_of(s);
  const size_t rows = chunk_rows(s);
  Workspace w;
  w.hidden = base;
  w.wide = w.hidden + r.hidden;
  w.q = w.gate = w.wide + r.wide;
  w.k = w.q + rows * s.attention.q_width();
  w.v = w.k + rows * s.attention.kv_width();
  w.up = w.gate + rows * s.ffn;
  w.packed = w.gate + r.inner;
  w.logits = w.packed + r.packed;
  w.scores = w.logits + r.logits;
  w.running_max = w.scores + r.scores;
  w.running_sum = w.running_max + rows * s.attention.heads;
  return w;
}

const char* name_of(Op op) {
  constexpr const char* names[] = {"embedding", "norm1",  "q",       "k",          "v",   "append",
                                   "attention", "scores", "softmax", "wv",         "o",   "norm2",
                                   "gate",      "up",     "down",    "final_norm", "head"};
  return names[static_cast<size_t>(op)];
}

std::vector<Step> steps_of(const StageSpec& s) {
  std::vector<Step> steps;
  if (s.embedding) steps.push_back({Op::embedding, nullptr});
  std::vector<Op> block = {Op::norm1, Op::q, Op::k, Op::v, Op::append};
  if (s.divided)
    block.insert(block.end(), {Op::scores, Op::softmax, Op::wv});
  else
    block.push_back(Op::attention);
  block.insert(block.end(), {Op::o, Op::norm2});
  if (s.gated) block.push_back(Op::gate);
  block.insert(block.end(), {Op::up, Op::down});
  for (const BlockSpec& b : s.blocks)
    for (const Op op : block) steps.push_back({op, &b});
  if (s.final_norm) steps.push_back({Op::final_norm, nullptr});
  if (s.head) steps.push_back({Op::head, nullptr});
  return steps;
}

std::vector<std::string> names_of(const StageSpec& s, const std::vector<Step>& steps, size_t first_layer) {
  std::vector<std::string> names;
  for (const Step& step : steps) {
    const size_t layer = step.block == nullptr ? 0 : first_layer + static_cast<size_t>(step.block - s.blocks.data());
    names.push_back(step.block == nullptr ? name_of(step.op) : std::to_string(layer) + "." + name_of(step.op));
  }
  return names;
}

// Whether KV heads [begin, end) have a cache.
bool cover(const HeadCaches& caches, size_t begin, size_t end) {
  if (caches.empty()) return false;
  return std::all_of(caches.begin() + begin, caches.begin() + end,
                     [](const HeadCache& c) { return c.data != nullptr; });
}

// Whether only the hidden states are live before or after an operation; the final norm of the last tokens stays where
// it is, because no chunk follows.
bool begins_alone(Op op) {
  return op == Op::embedding || op == Op::norm1 || op == Op::norm2 || op == Op::final_norm || op == Op::head;
}
bool ends_alone(Op op) {
  return op == Op::embedding || op == Op::o || op == Op::down || op == Op::final_norm || op == Op::head;
}

}  // namespace

size_t Stage::workspace_size(const StageSpec& spec) {
  const Sizes r = sizes_of(spec);
  return product({r.hidden + r.wide + r.inner + r.packed + r.logits + r.scores + r.running, sizeof(float)});
}

Stage::Stage(Pool& pool, StageSpec spec, void* workspace, size_t first_layer)
    : pool_(pool),
      spec_(std::move(spec)),
      workspace_(workspace_at(spec_, static_cast<float*>(workspace))),
      steps_(steps_of(spec_)),
      ops_(names_of(spec_, steps_, first_layer)),
      seconds_(ops_.size()),
      best_(pool.threads() * outputs()),
      spans_(pool.threads()) {
  const size_t widest = std::max({spec_.hidden, spec_.attention.q_width(), spec_.ffn});
  pool_.reserve(
      std::max({linear_scratch(widest) + spec_.hidden, spec_.attention.head_dim, attention_scratch(spec_.attention)}));
}

std::vector<std::pair<std::string, Region>> Stage::regions() const {
  const Workspace& w = workspace_;
  const auto region = [&](const float* start, size_t width) {
    return Region{static_cast<size_t>(start - w.hidden) * sizeof(float), width * sizeof(float), width * sizeof(float)};
  };
  const size_t hidden = spec_.hidden, q = spec_.attention.q_width(), kv = spec_.attention.kv_width();
  std::vector<std::pair<std::string, Region>> found = {{"hidden", region(w.hidden, hidden)},
                                                       {"normed", region(w.wide, hidden)},
                                                       {"q", region(w.q, q)},
                                                       {"k", region(w.k, kv)},
                                                       {"v", region(w.v, kv)},
                                                       {"attended", region(w.wide, q)},
                                                       {"gate", region(w.gate, spec_.ffn)},
                                                       {"up", region(w.up, spec_.ffn)}};
  if (spec_.divided)
    found.emplace_back("scores", region(w.scores, spec_.attention.heads * scores_stride(spec_.attention)));
  return found;
}

bool Stage::present(const Step& step) const {
  const BlockSpec* b = step.block;
  const size_t heads = spec_.attention.kv_heads;
  switch (step.op) {
    case Op::norm1:
      return b->norm1.has_value();
    case Op::q:
      return b->q.has_value();
    case Op::k:
      return b->k.has_value();
    case Op::v:
      return b->v.has_value();
    case Op::append:
    case Op::attention:
      return cover(b->keys, 0, heads) && cover(b->values, 0, heads);
    case Op::scores:
      return cover(b->keys, b->scores_heads.begin, b->scores_heads.end);
    case Op::wv:
      return cover(b->values, b->weighted_heads.begin, b->weighted_heads.end);
    case Op::o:
      return b->o.has_value();
    case Op::norm2:
      return b->norm2.has_value();
    case Op::gate:
      return b->gate.has_value();
    case Op::up:
      return b->up.has_value();
    case Op::down:
      return b->down.has_value();
    default:
      return true;
  }
}

void Stage::check_range(bool source, bool target, size_t tokens, size_t first, size_t last) const {
  if (first >= last || last > steps_.size())
    throw std::invalid_argument("there is no range of operations [" + std::to_string(first) + ", " +
                                std::to_string(last) + ") among " + std::to_string(steps_.size()));
  for (size_t i = first; i < last; ++i)
    if (!present(steps_[i])) throw std::invalid_argument("this stage has nothing to run " + ops_[i] + " with");
  if (embeds(first) && !source) throw std::invalid_argument("the embedding needs a source of token ids");
  if (tokens <= chunk_tokens()) return;
  const bool kept = source && begins_alone(steps_[first].op) && ends_alone(steps_[last - 1].op);
  if (!kept || (!target && !chooses(last)))
    throw std::invalid_argument("tokens (" + std::to_string(tokens) + ") pass in chunks of " +
                                std::to_string(chunk_tokens()) +
                                ", so activations cannot stay in the workspace: give "
                                "source and target, and cut only where the hidden states are all there is, or let "
                                "chunks pass in calls of their own");
}

size_t Stage::positions(size_t first, size_t last) const {
  const auto attends = [](const Step& step) { return step.op == Op::attention; };
  const bool contiguous = std::any_of(steps_.begin() + first, steps_.begin() + last, attends);
  return contiguous ? spec_.attention.capacity : spec_.context;
}

void Stage::check_attend(size_t tokens, size_t past) const {
  if (!spec_.paged) throw std::invalid_argument("only the attention of a paged stage is done over spans");
  if (tokens > std::min(spec_.max_tokens, chunk_tokens()) || past + tokens > spec_.context)
    throw std::invalid_argument("the workspace has no " + std::to_string(tokens) + " tokens after " +
                                std::to_string(past) + ": at most " +
                                std::to_string(std::min(spec_.max_tokens, chunk_tokens())) + " pass at a time, of " +
                                std::to_string(spec_.context));
}

void Stage::attend(const KvSpans& spans, bool first, bool last, size_t tokens, size_t past) {
  const Running running{workspace_.running_max, workspace_.running_sum, first, last};
  auto work = [&](size_t thread) {
    attention_share(kernels(), pool_, thread, spec_.attention,
                    {spans, spec_.batch, tokens, past, workspace_.q, workspace_.wide, running});
  };
  pool_.run(work);
}

size_t Stage::find(Op op, size_t layer) const {
  const auto sought = [&](const Step& step) {
    return step.op == op && (step.block == nullptr || step.block == spec_.blocks.data() + layer);
  };
  return static_cast<size_t>(std::find_if(steps_.begin(), steps_.end(), sought) - steps_.begin());
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
  expect("rows of caches", rows.caches, spec_.attention.capacity + spec_.passing);
  for (const size_t position : rows.positions) expect("positions", position + 1, spec_.context);
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
  const bool part = last - first < steps_.size() || steps_[last - 1].op == Op::final_norm;
  run({source, target, tokens, past, first, last, part, nullptr}, own, stamps);
}

void Stage::run(const StageIo& io, Range own, double* stamps) {
  const size_t first = io.begin, last = io.end, chunk = chunk_tokens();
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
