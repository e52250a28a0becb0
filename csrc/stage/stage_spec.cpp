#include "stage/stage_spec.h"

#include <stdexcept>

#include "stage/layout.h"

namespace helm {

const Operation& StageSpec::attention(size_t block) const {
  for (const auto& op : operations)
    if (op->block == block && op->attention() != nullptr) return *op;
  throw std::invalid_argument("block " + std::to_string(block) + " has no attention");
}

void check(const StageSpec& s) {
  expect(!s.operations.empty(), "there is nothing to compute");
  const bool ragged = s.sequences > 0;
  expect(ragged || s.max_tokens <= s.capacity, "max_tokens exceeds capacity");
  expect(!ragged || (s.batch == 1 && !s.paged),
         "rows of several sequences have batch 1, attention in one operation and caches at home");
  expect(s.paged || ragged || s.context == s.capacity, "context (" + std::to_string(s.context) +
                                                           ") differs from capacity (" + std::to_string(s.capacity) +
                                                           "), and the stage is not paged");
  expect(s.last == 1 || (!ragged && s.last <= s.max_tokens && s.batch * s.max_tokens <= chunk_rows(s)),
         "logits of " + std::to_string(s.last) + " tokens are of passes in one piece");
  for (const auto& op : s.operations) {
    if (op->block) expect(*op->block < s.blocks, op->title() + " belongs to none of the stage's blocks");
    op->check(s);
  }
}

}  // namespace helm
