// Routed experts: a router's choice for every row, and the networks that it chooses.
#pragma once
#include "kernels/experts/experts.h"
#include "kernels/experts/router.h"
#include "runtime/event.h"
#include "stage/norm_operation.h"
#include "stage/operation.h"

namespace helm {

// normed -> logits of all experts, indices of the chosen ones (int32), their weights; where experts are computed
// elsewhere too, a message of rows [normed | indices | weights]. With a norm of its own it reads hidden states, and
// leaves them normed behind all that.
class RouterOperation final : public Operation {
 public:
  std::optional<Matrix> matrix;
  RouterSpec router{};
  std::optional<NormWeights> input_norm;
  float logit_scale = 1;
  bool sends = false;         // leaves[3], the message, is written
  int32_t* record = nullptr;  // [batch][context][chosen], or null: what was chosen last at every position

  void check(const StageSpec& spec) const override;
  bool present() const override { return matrix.has_value(); }
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec& spec) const override;
  size_t columns() const override { return reads[0].width; }
  Range hidden_read(size_t hidden) const override { return input_norm ? Range{0, hidden} : Range{0, 0}; }

 private:
  // What is multiplied.
  const Value& input(StagePass& pass) const;
  void send(StagePass& pass) const;
  void keep(StagePass& pass) const;
};

// One matrix of every expert, with the array of pointers that kernels read.
struct ExpertWeights {
  std::vector<const void*> weights;  // [experts]
  ExpertMatrix matrix;

  void point() { matrix.weights = weights.data(); }
};

// normed, chosen, weights -> hidden: the weighted networks are added to the residual stream; or -> a value of their
// own, which they take the place of, and of whose width their input may be instead. Elsewhere than the router: message
// -> sum of the weighted networks. Operations of a plan that are parts of this one, `experts_gate` and `experts_up`,
// come before it: it does them, and their seconds are theirs.
class ExpertsOperation final : public Operation {
 public:
  size_t experts = 0, chosen = 0;
  Range own{0, SIZE_MAX};          // of experts, which this stage has; with slots those that these hold
  const int32_t* slots = nullptr;  // [experts + 1], of ExpertLayer; `weights` are then of slots. The last is not 0
                                   // where others have been computed already: a sum goes on
  const int32_t* late = nullptr;   // [experts], of LateExperts, or null
  bool turns = false;              // three more parts come before: of the experts that are not late
  std::shared_ptr<Event> arrived;
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
  Range hidden_read(size_t hidden) const override { return adds() ? Range{0, hidden} : Range{0, 0}; }
  Range hidden_left(size_t hidden) const override { return adds() ? Range{0, hidden} : Range{0, 0}; }

 private:
  bool adds() const { return leaves[0].area() == Area::hidden; }
  bool own_sum() const { return reads.size() == 1; }
  bool here(size_t expert) const { return own.begin <= expert && expert < own.end; }
  ExpertLayer layer() const;
  ExpertInput input() const;
  ExpertChoice choice() const;
};

// sum of networks that were computed elsewhere -> hidden, to which it is added.
class CombineOperation final : public Operation {
 public:
  void check(const StageSpec& spec) const override;
  void run(StagePass& pass) const override;
  Range hidden_read(size_t hidden) const override { return {0, hidden}; }
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
