// Layout: where a stage's values are in its workspace.
#pragma once
#include "stage/stage_spec.h"

namespace helm {

// Tokens of each sequence that pass through a stage at a time, and rows of all that do.
size_t chunk_tokens(const StageSpec& spec);
size_t chunk_rows(const StageSpec& spec);
// Rows that yield logits at most.
size_t outputs_of(const StageSpec& spec);

// Where one row (a token of a sequence; row = sequence * tokens + token) of something is in the workspace, in bytes.
struct Region {
  size_t offset, row_bytes, stride;

  bool operator==(const Region& other) const { return offset == other.offset && row_bytes == other.row_bytes; }
};

// What is in an area has a fixed place, however many rows a pass has: stages exchange rows. In `inner` the values of a
// body follow each other, and those of the next body take their place; a norm of hidden states begins a body.
class Layout {
 public:
  explicit Layout(const StageSpec& spec);

  size_t bytes() const;
  // Sets `at` of all values.
  void place(StageSpec& spec, float* base) const;
  // Of a value of an operation.
  Region region(size_t op, const Value& value) const;

  size_t rows() const { return rows_; }
  // Floats from the workspace's start: packed inputs of linear layers; logits; what `attend` keeps between calls.
  size_t packed() const { return inner_at() + inner_; }
  size_t logits() const { return packed() + packed_; }
  size_t running_max() const { return logits() + logits_ + scores_; }
  size_t running_sum() const { return running_max() + rows_ * heads_; }
  size_t space() const { return running_max() + running_; }  // what single operations need while they work

 private:
  size_t inner_at() const { return hidden_ + wide_; }
  size_t offset(size_t op, const Value& value) const;

  size_t rows_;  // of a chunk; of ragged passes all
  size_t heads_;
  size_t hidden_, wide_, inner_, packed_, logits_, scores_, running_, space_ = 0;  // floats, multiples of 16
  std::vector<std::vector<std::pair<std::string, size_t>>> begins_;  // by operation, floats of a row before a value
};

}  // namespace helm
