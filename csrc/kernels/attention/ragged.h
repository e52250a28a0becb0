// Ragged: the rows of a pass over several sequences, each with as many tokens as it has, their caches in blocks.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/kernels.h"

namespace helm {

constexpr size_t kNowhere = SIZE_MAX;

// Positions [position, position + count) of a sequence lie in rows [row, row + count) of every KV head's cache. Rows
// beyond a stage's own caches are those of its passing ones.
struct CacheRun {
  size_t position, count, row;
};

// Rows [first, first + tokens) of the pass are the sequence's tokens at positions past, past + 1, ...; `runs`, of all
// runs those from `begin` on, hold its positions up to the last of these, in order and without gaps. `slot`: which of
// the states that operations keep is its own.
struct RaggedSequence {
  size_t first, tokens, past, begin, runs, slot;
};

// Rows that belong to no sequence are rotated, but neither cached nor attended to: another device does that.
struct Ragged {
  // Throws std::invalid_argument when sequences overlap, have gaps, or rows that are not there.
  Ragged(std::vector<size_t> positions, std::vector<RaggedSequence> sequences, std::vector<CacheRun> runs,
         std::vector<size_t> outputs);

  size_t rows() const { return positions.size(); }
  const CacheRun* runs_of(const RaggedSequence& s) const { return runs.data() + s.begin; }

  std::vector<size_t> positions;  // by row
  std::vector<RaggedSequence> sequences;
  std::vector<CacheRun> runs;
  std::vector<size_t> outputs;  // rows, ascending, whose logits are wanted
  std::vector<size_t> cached;   // by row: the row of caches; kNowhere
  size_t caches = 0;            // rows that caches must have
};

}  // namespace helm
