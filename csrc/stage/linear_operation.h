// LinearOperation: the product of every row with a matrix, or with a part of one, and what becomes of it.
#pragma once
#include "stage/operation.h"

namespace helm {

// Left in a value of its own; or added to the residual stream (`adds`); or what an activation makes of it, with the
// same columns of a gate where there is one: reads[1]. `factor` multiplies the product, with its bias, before all that;
// columns [at, ...) of a layer's inputs multiply the outcome of an activation.
class LinearOperation final : public Operation {
 public:
  std::optional<Matrix> matrix;
  bool adds = false;
  float factor = 1;
  std::optional<Activation> activation;
  std::optional<LayerInputs> inputs;
  size_t at = 0;

  void check(const StageSpec& spec) const override;
  bool present() const override { return matrix.has_value(); }
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec& spec) const override;
  size_t columns() const override { return reads[0].width; }
  Range hidden_read(size_t hidden) const override;
  Range hidden_left(size_t hidden) const override;

 private:
  void scale(StagePass& pass, float by) const;
  void activate(StagePass& pass) const;
};

// The head: logits of the last token of every sequence, and the likeliest tokens.
class HeadOperation final : public Operation {
 public:
  Matrix matrix;
  float factor = 1;   // multiplies logits
  float softcap = 0;  // after that, logits become softcap * tanh(logit / softcap); 0: they stay

  void check(const StageSpec& spec) const override;
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec& spec) const override;
  size_t columns() const override { return reads[0].width; }
  bool chooses() const override { return true; }
  bool of_outputs() const override { return true; }

 private:
  void bound(StagePass& pass) const;
};

}  // namespace helm
