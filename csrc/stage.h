// Stage: all consecutive operations of one device as one call per pass.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "attention.h"
#include "linear.h"

namespace helm {

struct NormWeights {
  const float* weight = nullptr;  // [hidden] or [head_dim]
  const float* bias = nullptr;    // same or null
};

struct BlockSpec {
  NormWeights norm1, norm2;
  std::optional<NormWeights> q_norm, k_norm;
  Matrix q, k, v, o;
  std::optional<Matrix> gate;
  Matrix up, down;
  void* keys;    // [batch][kv_heads][capacity][head_dim]
  void* values;  // same shape
};

struct StageSpec {
  size_t hidden, ffn, vocab;
  Attention attention;  // heads, cache capacity and format
  NormKind norm;
  float norm_eps;
  Activation activation;
  size_t batch, max_tokens;
  size_t rotary_dim;  // 0: no rotation
  const float* cos;   // [capacity][rotary_dim / 2]
  const float* sin;
  std::optional<Matrix> embedding;
  const float* positions;  // [capacity][hidden] or null
  std::vector<BlockSpec> blocks;
  std::optional<NormWeights> final_norm;
  std::optional<Matrix> head;
};

// Throws std::invalid_argument naming the first inconsistency: shapes, missing parts.
void check(const StageSpec& spec);

// Where a stage's activations are; all f32. `rows` is batch * tokens of one chunk.
struct Workspace {
  float* hidden;  // [rows][hidden]: the residual stream
  float* wide;    // [rows][max(hidden, q_width)]: norms, attention output
  float* inner;   // [rows][max(q_width + 2 kv_width, 2 ffn)]: q, k, v; later gate, up
  float* packed;  // rows * max(hidden, q_width, ffn): the input of a linear layer, in blocks of tokens
  float* logits;  // [batch][vocab]
};

// Prompts pass in chunks of this many rows, so that a stage's scratch does not grow with the prompt; more would
// not make the matrix product faster.
constexpr size_t kChunkRows = 128;

class Stage {
 public:
  // Bytes, a closed form of the dimensions alone. With R = batch * min(max_tokens, max(1, 128 / batch)):
  // 4 R (hidden + max(hidden, q_width) + max(q_width + 2 kv_width, 2 ffn) + max(hidden, q_width, ffn))
  // + 4 batch vocab, each of the five terms rounded up to 64 bytes.
  static size_t workspace_size(const StageSpec& spec);

  // `workspace` has workspace_size(spec) bytes, 64-byte aligned; everything the spec points to outlives this.
  Stage(Pool& pool, StageSpec spec, void* workspace, size_t first_layer);

  const std::vector<std::string>& ops() const { return ops_; }
  const StageSpec& spec() const { return spec_; }

  // One pass; sizes have been checked. source: int32 (batch, tokens) ids below vocab with an embedding, else
  // f32 (batch, tokens, hidden). target: with a head int32 (batch,), else f32 (batch, tokens, hidden).
  // stamps: ops + 1 seconds; an operation that ran once per chunk has the sum of its times.
  void run(const void* source, void* target, size_t tokens, size_t past, double* stamps);

  const float* logits() const { return workspace_.logits; }

 private:
  friend class StagePass;
  struct Best {
    float value;
    size_t index;
  };

  Pool& pool_;
  StageSpec spec_;
  Workspace workspace_;
  std::vector<std::string> ops_;
  std::vector<double> seconds_;  // per operation, of the pass under way
  std::vector<Best> best_;       // [threads][batch]
};

}  // namespace helm
