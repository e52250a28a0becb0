#include "stage.h"

#include <algorithm>

#include "shape.h"
#include "stage_pass.h"

namespace helm {
namespace {

size_t chunk_rows(const StageSpec& s) {
  return product({s.batch, std::min(s.max_tokens, std::max<size_t>(1, kChunkRows / s.batch))});
}

struct Regions {
  size_t hidden, wide, inner, packed, logits;  // floats, multiples of 16
};

Regions regions_of(const StageSpec& s) {
  const size_t rows = chunk_rows(s), q = s.attention.q_width(), kv = s.attention.kv_width();
  const auto region = [](size_t count, size_t width) { return round_up(product({count, width}), 16); };
  return {region(rows, s.hidden), region(rows, std::max(s.hidden, q)), region(rows, std::max(q + 2 * kv, 2 * s.ffn)),
          region(rows, std::max({s.hidden, q, s.ffn})), region(s.batch, s.vocab)};
}

Workspace workspace_at(const Regions& r, float* base) {
  Workspace w;
  w.hidden = base;
  w.wide = w.hidden + r.hidden;
  w.inner = w.wide + r.wide;
  w.packed = w.inner + r.inner;
  w.logits = w.packed + r.packed;
  return w;
}

std::vector<std::string> names_of(const StageSpec& s, size_t first_layer) {
  std::vector<std::string> names;
  if (s.embedding) names.emplace_back("embedding");
  for (size_t i = 0; i < s.blocks.size(); ++i) {
    std::vector<std::string> block = {"norm1", "q", "k", "v", "append", "attention", "o", "norm2"};
    if (s.blocks[i].gate) block.emplace_back("gate");
    block.insert(block.end(), {"up", "down"});
    for (const auto& name : block) names.push_back(std::to_string(first_layer + i) + "." + name);
  }
  if (s.head) names.insert(names.end(), {"final_norm", "head"});
  return names;
}

}  // namespace

size_t Stage::workspace_size(const StageSpec& spec) {
  const Regions r = regions_of(spec);
  return product({r.hidden + r.wide + r.inner + r.packed + r.logits, sizeof(float)});
}

Stage::Stage(Pool& pool, StageSpec spec, void* workspace, size_t first_layer)
    : pool_(pool),
      spec_(std::move(spec)),
      workspace_(workspace_at(regions_of(spec_), static_cast<float*>(workspace))),
      ops_(names_of(spec_, first_layer)),
      seconds_(ops_.size()),
      best_(pool.threads() * spec_.batch) {
  pool_.reserve(std::max(kLinearScratch + spec_.hidden, attention_scratch(spec_.attention)));
}

void Stage::run(const void* source, void* target, size_t tokens, size_t past, double* stamps) {
  std::fill(seconds_.begin(), seconds_.end(), 0.0);
  const StageIo io{source, target, tokens, past};
  const size_t chunk = std::min(tokens, std::max<size_t>(1, kChunkRows / spec_.batch));
  auto work = [&](size_t thread) {
    StagePass pass(*this, io, thread);
    if (thread == 0) stamps[0] = pass.started();
    for (size_t first = 0; first < tokens; first += chunk) pass.chunk(first, std::min(chunk, tokens - first));
  };
  pool_.run(work);
  for (size_t i = 0; i < seconds_.size(); ++i) stamps[i + 1] = stamps[i] + seconds_[i];
}

}  // namespace helm
