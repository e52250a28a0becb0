// Routed experts: a router's choice for every row, and the networks that it chooses.
#pragma once
#include "kernels/experts/experts.h"
#include "kernels/experts/router.h"
#include "stage/operation.h"

namespace helm {

// normed -> logits of all experts, indices of the chosen ones (int32), their weights.
class RouterOperation final : public Operation {
 public:
  std::optional<Matrix> matrix;
  RouterSpec router{};

  void check(const StageSpec& spec) const override;
  bool present() const override { return matrix.has_value(); }
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec& spec) const override;
  size_t columns() const override { return reads[0].width; }
};

// One matrix of every expert, with the array of pointers that kernels read.
struct ExpertWeights {
  std::vector<const void*> weights;  // [experts]
  ExpertMatrix matrix;

  void point() { matrix.weights = weights.data(); }
};

// normed, chosen, weights -> hidden: the weighted networks are added to the residual stream. Operations of a plan that
// are parts of this one, `experts_gate` and `experts_up`, come before it and take no time of their own.
class ExpertsOperation final : public Operation {
 public:
  size_t experts = 0;
  std::optional<ExpertWeights> gate, up, down;
  Activation activation = Activation::silu;
  float limit = 0;
  bool input_scaled = false;
  Activations activations = Activations::int16;

  void check(const StageSpec& spec) const override;
  bool present() const override { return up.has_value() && down.has_value(); }
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec& spec) const override;
  size_t space(size_t rows) const override;
  Range hidden_read(size_t hidden) const override { return {0, hidden}; }

 private:
  ExpertLayer layer() const;
};

// An operation whose work is part of a later one's.
class MemberOperation final : public Operation {
 public:
  void check(const StageSpec&) const override {}
  void run(StagePass& pass) const override;
};

// Multiplies every row of a value by the sigmoid of its product with a matrix of one row: reads are what that is
// multiplied with, and the value.
class RowGateOperation final : public Operation {
 public:
  std::optional<Matrix> matrix;

  void check(const StageSpec& spec) const override;
  bool present() const override { return matrix.has_value(); }
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec&) const override { return linear_scratch(reads[0].width) + reads[0].width; }
  size_t columns() const override { return reads[0].width; }
};

}  // namespace helm
