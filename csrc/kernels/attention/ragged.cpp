#include "kernels/attention/ragged.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace helm {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("ragged rows: " + what); }

std::string sequence(size_t index) { return "sequence " + std::to_string(index); }

// Where position `past` + i of a sequence is cached, for all of its tokens.
void place(Ragged& r, const RaggedSequence& s, const std::string& name) {
  size_t position = 0;
  for (size_t i = 0; i < s.runs; ++i) {
    const CacheRun& run = r.runs_of(s)[i];
    if (run.position != position || run.count == 0) refuse(name + " has a gap at position " + std::to_string(position));
    const size_t end = std::min(position + run.count, s.past + s.tokens);
    for (size_t p = std::max(position, s.past); p < end; ++p) {
      size_t& cached = r.cached[s.first + p - s.past];
      if (cached != kNowhere) refuse(name + " shares rows with another");
      cached = run.row + p - position;
    }
    position += run.count;
    r.caches = std::max(r.caches, run.row + run.count);
  }
  if (position < s.past + s.tokens) refuse(name + " is cached up to position " + std::to_string(position) + " only");
}

}  // namespace

Ragged::Ragged(std::vector<size_t> positions_, std::vector<RaggedSequence> sequences_, std::vector<CacheRun> runs_,
               std::vector<size_t> outputs_)
    : positions(std::move(positions_)),
      sequences(std::move(sequences_)),
      runs(std::move(runs_)),
      outputs(std::move(outputs_)),
      cached(positions.size(), kNowhere) {
  for (size_t i = 0; i < sequences.size(); ++i) {
    const RaggedSequence& s = sequences[i];
    const bool rows_there = s.tokens > 0 && s.first <= rows() && s.tokens <= rows() - s.first;
    if (!rows_there) refuse(sequence(i) + " has rows that are not there");
    const bool runs_there = s.begin <= runs.size() && s.runs <= runs.size() - s.begin;
    if (!runs_there) refuse(sequence(i) + " has runs that are not there");
    place(*this, s, sequence(i));
  }
  for (const size_t row : outputs)
    if (row >= rows()) refuse("output " + std::to_string(row) + " of " + std::to_string(rows()) + " rows");
}

}  // namespace helm
