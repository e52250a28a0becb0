// StageSpec: the operations of a stage in order, and what they have in common.
#pragma once
#include <algorithm>
#include <memory>

#include "stage/operation.h"

namespace helm {

// What the workspace of a stage holds for a row at least, in 4-byte numbers: the most of any layout of the model, where
// other stages of it have other layouts, as rows have the same places in all of them. `columns`: of a linear layer's
// input; `heads`: of paged attention.
struct Room {
  size_t wide = 0, inner = 0, columns = 0, heads = 0, scores = 0;
};

struct StageSpec {
  size_t hidden = 0, vocab = 0, batch = 0, max_tokens = 0;
  size_t capacity = 0;   // rows of each sequence's caches; ragged: of all of them
  size_t context = 0;    // positions there are: of tables and kept rows
  size_t sequences = 0;  // ragged: most rows that yield logits in a pass of up to max_tokens rows; 0: all alike
  // Rows (sequences x tokens) of prompts that pass through at a time, so that scratch does not grow with prompts; with
  // fewer, experts would meet few rows each and be read more often, and AMX would put weights in pairs more often.
  size_t chunk_rows = 512;
  size_t last = 1;     // tokens at the end of each sequence that yield logits; not ragged
  size_t passing = 0;  // ragged: rows of the caches that keys and values only pass through
  bool paged = false;  // caches are rings: position p is in row p % capacity; the attention of a block can be done in
                       // several calls of `attend`
  Room room{};
  size_t blocks = 0;
  std::vector<std::unique_ptr<Operation>> operations;

  // The attention of a block. Throws std::invalid_argument where there is none.
  const Operation& attention(size_t block) const;
};

// Throws std::invalid_argument naming the first inconsistency.
void check(const StageSpec& spec);

}  // namespace helm
