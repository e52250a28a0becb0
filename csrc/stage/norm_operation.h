// Norms: of hidden states, of those whose logits are wanted, of heads and of whole projections.
#pragma once
#include "stage/operation.h"

namespace helm {

struct NormWeights {
  NormKind kind = NormKind::rms;
  float eps = 0;
  const float* weight = nullptr;  // of what is normed
  const float* bias = nullptr;    // same or null
};

// hidden -> normed. With one row, a norm is cheaper to repeat on every thread than a barrier.
class NormOperation final : public Operation {
 public:
  std::optional<NormWeights> weights;
  bool last = false;  // of the last token of every sequence
  bool kept = false;  // whether others than products read it, after a barrier

  void check(const StageSpec& spec) const override;
  bool present() const override { return weights.has_value(); }
  void run(StagePass& pass) const override;
  bool of_outputs() const override { return last; }
  Range hidden_read(size_t hidden) const override { return {0, hidden}; }
};

// A norm of another value, row by row.
class ValueNormOperation final : public Operation {
 public:
  std::optional<NormWeights> weights;

  void check(const StageSpec& spec) const override;
  bool present() const override { return weights.has_value(); }
  void run(StagePass& pass) const override;
};

}  // namespace helm
