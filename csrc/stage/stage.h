// Stage: all consecutive operations of one device as one call per pass.
#pragma once
#include <string>
#include <unordered_map>

#include "kernels/attention/ragged.h"
#include "stage/layout.h"

namespace helm {

struct StageIo;
class EmbeddingOperation;

class Stage {
 public:
  // Bytes. With R = batch * min(max_tokens, max(1, chunk_rows / batch)), widths the largest of any operation or of
  // `room`: 4 R (hidden + wide + inner + packed) + 4 batch last vocab, packed the widest input of a linear layer (a
  // width below 40 that is no multiple of 32 counts as 20 per begun 32), each of the five terms rounded up to 64 bytes;
  // divided attention adds 4 R heads round_up(capacity, 16), paged 8 R heads, rounded up likewise, experts what they
  // need. Ragged: R = max_tokens, and `sequences` in place of batch last.
  static size_t workspace_size(const StageSpec& spec) { return Layout(spec).bytes(); }

  // `workspace` has workspace_size(spec) bytes, 64-byte aligned; everything the spec points to outlives this.
  Stage(Pool& pool, StageSpec spec, void* workspace, size_t first_layer);

  const std::vector<std::string>& ops() const { return ops_; }
  const StageSpec& spec() const { return spec_; }

  // By name, with the same result for all stages of the same layouts, batch, capacity and max_tokens. `up` holds
  // what the activation makes of it; `normed` and `attended` share memory, as do values of the bodies of a block. Where
  // blocks have a value in another place than the first, or of another width, theirs are named `3.q`.
  using Regions = std::vector<std::pair<std::string, Region>>;
  const Regions& regions() const { return regions_; }
  // Whether all blocks have the same.
  bool uniform() const { return uniform_; }

  // Throws std::invalid_argument when operations [first, last) cannot run like this: something is missing here, or
  // values would be lost between chunks of rows. `source`, `target`: whether they are given; `tokens`: how many of
  // every sequence pass in this call.
  void check_range(bool source, bool target, size_t tokens, size_t first, size_t last) const;
  // How many positions operations [first, last) can have: a paged stage's own attention reads one run of its ring.
  size_t positions(size_t first, size_t last) const;
  bool embeds(size_t first) const { return op(first).reads_ids(); }
  bool chooses(size_t last) const { return op(last - 1).chooses(); }

  // Operations [first, last) of one pass for tokens `own` of every sequence; all has been checked. source: int32
  // (batch, tokens) ids below vocab when the range begins with the embedding, else f32 (batch, tokens, hidden), or
  // null: activations are in the workspace. target: int32 (batch, min(last, tokens)) when the range ends with the head,
  // else f32 (batch, tokens, hidden), or null: they stay there. It may be the source; of a range that ends with a part
  // of o or down it gets the columns of that part. stamps: last - first + 1 seconds; an operation that ran once per
  // chunk has the sum of its times.
  void run(const void* source, void* target, size_t tokens, size_t past, Range own, size_t first, size_t last,
           double* stamps);

  // Throws std::invalid_argument when `run_ragged` cannot run the first `count` rows of `rows` like this.
  void check_ragged(const Ragged& rows, size_t count, bool ids, size_t first, size_t last) const;

  // Operations [first, last) for the first `count` of `rows`, in one piece. `ids` (count,) are read when the range
  // begins with the embedding, else activations are in the workspace; they stay there, but for what the head chooses:
  // then `chosen` (outputs,) is written, and logits are in the same order. stamps as above.
  void run_ragged(const Ragged& rows, size_t count, const int32_t* ids, int32_t* chosen, size_t first, size_t last,
                  double* stamps);

  // The index of an operation outside blocks, or of a block; as many as there are for one that is missing.
  size_t find(const std::string& name) const;
  size_t find(const char* name, size_t block) const { return find(std::to_string(block) + "." + name); }
  // The same, or, where the block has none, the end of it: a mixer without a cache comes before all of its attention.
  size_t within(const char* name, size_t block) const;
  bool is(size_t index, const char* name) const { return op(index).name == name; }
  // Whether an operation belongs to no block.
  bool outside(size_t index) const { return !op(index).block; }
  // Null without one.
  const EmbeddingOperation* embedding() const;

  // Throws std::invalid_argument when `attend` cannot run like this.
  void check_attend(size_t block, size_t tokens, size_t past) const;

  // Attention of a block of a paged stage's rows, as `append` left them in q, to spans of caches. After the last call
  // of a running state, `attended` is what the operation `attention` would have left.
  void attend(size_t block, const KvSpans& spans, bool first, bool last, size_t tokens, size_t past);

  const float* logits() const { return base_ + layout_.logits(); }

 private:
  friend class StagePass;
  struct Best {
    float value;
    size_t index;
  };

  const Operation& op(size_t index) const { return *spec_.operations[index]; }
  size_t count() const { return spec_.operations.size(); }
  void add_region(const std::string& name, const std::string& title, const Region& region);
  void run(const StageIo& io, Range own, double* stamps);

  Pool& pool_;
  StageSpec spec_;
  Layout layout_;
  float* base_;
  std::vector<std::string> ops_;
  Regions regions_;
  bool uniform_ = true;
  std::unordered_map<std::string, size_t> index_;  // by title
  std::vector<bool> alone_;                        // by operation: whether only hidden states are live before it
  std::vector<double> seconds_;                    // per operation, of the pass under way
  std::vector<Best> best_;                         // [threads][outputs]
  std::vector<std::vector<KvSpan>> spans_;         // [threads]: of the sequence that a thread attends to
};

}  // namespace helm
