// Stage: all consecutive operations of one device as one call per pass.
#pragma once
#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/attention_divided.h"
#include "kernels/linear/linear.h"
#include "kernels/attention/ragged.h"

namespace helm {

struct NormWeights {
  const float* weight = nullptr;  // [hidden] or [head_dim]
  const float* bias = nullptr;    // same or null
};

// Rows of one KV head as a memory keeps them beside its cache, bytes apart; `groups`: in 4-bit groups (cache_rows.h).
struct KeptHead {
  char* data = nullptr;
  size_t sequence = 0, token = 0;
  bool groups = false;
};
using KeptHeads = std::vector<KeptHead>;  // by KV head

// What a stage never runs may be missing. Matrices may be parts of an operation: rows [first, first + rows) of it.
struct BlockSpec {
  std::optional<NormWeights> norm1, norm2, q_norm, k_norm;
  std::optional<Matrix> q, k, v, o, gate, up, down;
  HeadCaches keys{};    // of each KV head [capacity][head_dim] per sequence, divided: [head_dim][capacity]; or empty
  HeadCaches values{};  // [capacity][head_dim]; or empty
  HeadCaches passing_keys{}, passing_values{};  // ragged: [passing][head_dim] each, behind the rows of those; or empty
  KeptHeads kept_keys{}, kept_values{};         // where else `append` leaves new rows; or empty
  Range scores_heads{}, weighted_heads{};       // divided: the KV heads that scores and wv compute
};

struct StageSpec {
  size_t hidden, ffn, vocab;
  Attention attention;  // heads, cache capacity and format
  size_t context;       // positions there are: of tables and kept rows
  bool divided;         // scores, softmax and wv are three operations
  bool paged;           // caches are rings: position p is in row p % capacity; the attention of a block can be done in
                        // several calls of `attend`
  bool gated;           // blocks have a gate, here or in another stage
  NormKind norm;
  float norm_eps;
  Activation activation;
  size_t batch, max_tokens;
  size_t sequences;   // ragged: most rows that yield logits in a pass of up to max_tokens rows; 0: all sequences alike
  size_t passing;     // ragged: rows of the caches that keys and values only pass through
  size_t rotary_dim;  // 0: no rotation
  const float* cos;   // [context][rotary_dim / 2]
  const float* sin;
  std::optional<Matrix> embedding;
  bool looked_up;          // `embedding` holds a pass's own rows, row-major (batch, tokens), not the packed table
  const float* positions;  // [context][hidden] or null
  std::vector<BlockSpec> blocks;
  std::optional<NormWeights> final_norm;  // of the last token of every sequence; leaves what `norm1` leaves
  std::optional<Matrix> head;             // here or in another stage than the final norm
};

// Throws std::invalid_argument naming the first inconsistency: shapes, missing parts.
void check(const StageSpec& spec);

// Where a stage's activations are; all f32. `rows` is batch * tokens of one chunk, of ragged passes all rows.
struct Workspace {
  float* hidden;     // [rows][hidden]: the residual stream
  float* wide;       // [rows][hidden]: norms; [rows][q_width]: attention output
  float *q, *k, *v;  // [rows][q_width], [rows][kv_width] twice
  float *gate, *up;  // [rows][ffn] each, where q, k and v are
  float* packed;     // rows * input_size of hidden, q_width or ffn: the input of a linear layer, in blocks of tokens
  float* logits;     // [batch or sequences][vocab]
  float* scores;     // divided: [rows][heads][capacity in whole panels]
  float *running_max, *running_sum;  // paged: [rows][heads] each, between calls of attend
};

// Where one row (a token of a sequence; row = sequence * tokens + token) of something is in the workspace, in bytes.
struct Region {
  size_t offset, row_bytes, stride;
};

enum class Op {
  embedding,
  norm1,
  q,
  k,
  v,
  append,
  attention,
  scores,
  softmax,
  wv,
  o,
  norm2,
  gate,
  up,
  down,
  final_norm,
  head
};

// One operation; `block` is null outside blocks.
struct Step {
  Op op;
  const BlockSpec* block;
};

// Prompts pass in chunks of this many rows, so that a stage's scratch does not grow with the prompt; more would
// not make the matrix product faster.
constexpr size_t kChunkRows = 128;

struct StageIo;

class Stage {
 public:
  // Bytes, a closed form of the dimensions alone. With R = batch * min(max_tokens, max(1, 128 / batch)):
  // 4 R (hidden + max(hidden, q_width) + max(q_width + 2 kv_width, 2 ffn) + max(hidden, q_width, ffn))
  // + 4 batch vocab (a width below 40 that is no multiple of 32 counts as 20 per begun 32 in the last maximum), each
  // of the five terms rounded up to 64 bytes; divided attention adds 4 R heads round_up(capacity, 16), paged 8 R heads,
  // rounded up likewise. Ragged: R = max_tokens, and `sequences` in place of batch before vocab.
  static size_t workspace_size(const StageSpec& spec);

  // `workspace` has workspace_size(spec) bytes, 64-byte aligned; everything the spec points to outlives this.
  Stage(Pool& pool, StageSpec spec, void* workspace, size_t first_layer);

  const std::vector<std::string>& ops() const { return ops_; }
  const StageSpec& spec() const { return spec_; }

  // By name, with the same result for all stages of the same dimensions, batch, capacity and max_tokens. `up` holds
  // what the activation makes of it; `normed` and `attended` share memory, as do q, k, v and gate, up.
  std::vector<std::pair<std::string, Region>> regions() const;

  // Throws std::invalid_argument when operations [first, last) cannot run like this: something is missing here, or
  // values would be lost between chunks of rows. `source`, `target`: whether they are given; `tokens`: how many of
  // every sequence pass in this call.
  void check_range(bool source, bool target, size_t tokens, size_t first, size_t last) const;
  // How many positions operations [first, last) can have: a paged stage's own attention reads one run of its ring.
  size_t positions(size_t first, size_t last) const;
  bool embeds(size_t first) const { return steps_[first].op == Op::embedding; }
  bool chooses(size_t last) const { return steps_[last - 1].op == Op::head; }

  // Operations [first, last) of one pass for tokens `own` of every sequence; all has been checked. source: int32
  // (batch, tokens) ids below vocab when the range begins with the embedding, else f32 (batch, tokens, hidden), or
  // null: activations are in the workspace. target: int32 (batch,) when the range ends with the head, else f32 (batch,
  // tokens, hidden), or null: they stay there. It may be the source; of a range that ends with a part of o or down it
  // gets the columns of that part. stamps: last - first + 1 seconds; an operation that ran once per chunk has the sum
  // of its times.
  void run(const void* source, void* target, size_t tokens, size_t past, Range own, size_t first, size_t last,
           double* stamps);

  // Throws std::invalid_argument when `run_ragged` cannot run the first `count` rows of `rows` like this.
  void check_ragged(const Ragged& rows, size_t count, bool ids, size_t first, size_t last) const;

  // Operations [first, last) for the first `count` of `rows`, in one piece. `ids` (count,) are read when the range
  // begins with the embedding, else activations are in the workspace; they stay there, but for what the head chooses:
  // then `chosen` (outputs,) is written, and logits are in the same order. stamps as above.
  void run_ragged(const Ragged& rows, size_t count, const int32_t* ids, int32_t* chosen, size_t first, size_t last,
                  double* stamps);

  // The index of an operation: of block `layer`, or outside blocks; as many as there are for one that is missing.
  size_t find(Op op, size_t layer = 0) const;
  bool is(size_t index, Op op) const { return steps_[index].op == op; }

  // Throws std::invalid_argument when `attend` cannot run like this.
  void check_attend(size_t tokens, size_t past) const;

  // Attention of a paged stage's rows, as `append` left them in q, to spans of caches. After the last call of a
  // running state, `attended` is what the operation `attention` would have left.
  void attend(const KvSpans& spans, bool first, bool last, size_t tokens, size_t past);

  const float* logits() const { return workspace_.logits; }

 private:
  friend class StagePass;
  struct Best {
    float value;
    size_t index;
  };

  bool present(const Step& step) const;
  size_t chunk_tokens() const {
    return spec_.sequences > 0 ? spec_.max_tokens : std::max<size_t>(1, kChunkRows / spec_.batch);
  }
  size_t outputs() const { return spec_.sequences > 0 ? spec_.sequences : spec_.batch; }
  void run(const StageIo& io, Range own, double* stamps);

  Pool& pool_;
  StageSpec spec_;
  Workspace workspace_;
  std::vector<Step> steps_;
  std::vector<std::string> ops_;
  std::vector<double> seconds_;             // per operation, of the pass under way
  std::vector<Best> best_;                  // [threads][outputs]
  std::vector<std::vector<KvSpan>> spans_;  // [threads]: of the sequence that a thread attends to
};

}  // namespace helm
