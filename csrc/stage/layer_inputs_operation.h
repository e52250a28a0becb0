// What layers read of a token beside its hidden state: a row of a table, which a projection of the token's embedding
// joins. Rows lie in a buffer beside the workspace, which keeps those of all tokens of a pass.
#pragma once
#include "stage/norm_operation.h"

namespace helm {

// ids -> rows of the buffer.
class LayerTableOperation final : public Operation {
 public:
  Matrix table;            // or, as the embedding's, the rows of a pass's own tokens
  bool looked_up = false;  // whether it is those
  float scale = 1;         // of the table's rows
  LayerInputs inputs;

  void check(const StageSpec& spec) const override;
  void run(StagePass& pass) const override;
  bool reads_ids() const override { return true; }
  Range hidden_left(size_t) const override { return {0, 0}; }
};

// Projection -> buffer: every layer's part of a row is normed, added to what is there, and multiplied by `scale`.
class LayerInputsOperation final : public Operation {
 public:
  std::optional<NormWeights> weights;  // of a layer's part
  size_t part = 0;                     // its width
  float scale = 1;
  LayerInputs inputs;

  void check(const StageSpec& spec) const override;
  bool present() const override { return weights.has_value(); }
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec&) const override { return part; }
};

}  // namespace helm
