#include "stage/experts_operation.h"

#include "stage/stage_pass.h"

namespace helm {

void RouterOperation::check(const StageSpec& spec) const {
  helm::check(router);
  expect(reads[0].width == spec.hidden && leaves[0].width == router.experts && leaves[1].width == router.chosen &&
             leaves[2].width == router.chosen,
         "the router leaves logits of all experts, and the chosen with their weights");
  if (matrix) check_matrix(name, *matrix, router.experts, spec.hidden);
}

size_t RouterOperation::scratch(const StageSpec& spec) const {
  return std::max(linear_scratch(reads[0].width) + spec.hidden, router_scratch(router));
}

// Its scratch may be where the only row of a norm is: whoever comes later reads that in the workspace.
void RouterOperation::run(StagePass& pass) const {
  pass.linear(*matrix, reads[0], leaves[0].at, router.experts, pass.rows(), false);
  pass.barrier();
  pass.forget_input();
  route_share(pass.k().mixers(), pass.thread(), pass.threads(), router, leaves[0].at, pass.rows(),
              reinterpret_cast<int32_t*>(leaves[1].at), leaves[2].at, pass.scratch());
  pass.done_by_all();
}

void ExpertsOperation::check(const StageSpec& spec) const {
  expect(reads[0].width == spec.hidden && leaves[0].area() == Area::hidden, "experts add to hidden states");
  expect(reads[1].width == reads[2].width && reads[1].width <= experts, "experts have a weight for every chosen one");
  if (!present()) return;
  const ExpertLayer made = layer();
  helm::check(made);
  for (const ExpertWeights* each : {gate ? &*gate : nullptr, &*up, &*down})
    expect(each == nullptr || each->weights.size() == experts, name + " has not as many matrices as experts");
  expect(made.up.columns == spec.hidden && made.down.rows == spec.hidden, name + " is of another width than hidden");
}

ExpertLayer ExpertsOperation::layer() const {
  ExpertLayer made;
  made.experts = experts;
  if (gate) made.gate = gate->matrix;
  made.up = up->matrix, made.down = down->matrix;
  made.activation = activation, made.limit = limit, made.input_scaled = input_scaled, made.activations = activations;
  return made;
}

size_t ExpertsOperation::scratch(const StageSpec&) const { return present() ? experts_scratch(layer()) : 0; }

size_t ExpertsOperation::space(size_t rows) const {
  return present() ? experts_workspace(layer(), reads[1].width, rows) : 0;
}

void ExpertsOperation::run(StagePass& pass) const {
  pass.forget_input();
  const ExpertChoice choice{reinterpret_cast<const int32_t*>(reads[1].at), reads[2].at, reads[1].width};
  experts_by_all(pass.k(), pass.pool(), pass.thread(), layer(), choice, reads[0].at, leaves[0].at, pass.rows(), true,
                 pass.space());
  pass.done_by_all();
}

void MemberOperation::run(StagePass& pass) const { pass.done(); }

void RowGateOperation::check(const StageSpec&) const {
  expect(leaves[0].width == 1 && reads[1].width > 0, name + " leaves a number for every row");
  if (matrix) check_matrix(name, *matrix, 1, reads[0].width);
}

void RowGateOperation::run(StagePass& pass) const {
  pass.linear(*matrix, reads[0], leaves[0].at, 1, pass.rows(), false);
  pass.barrier();
  const Range share = pass.mine(pass.rows());
  for (size_t row = share.begin; row < share.end; ++row)
    pass.k().mixers().gate_row(GateKind::sigmoid, reads[1].at + row * reads[1].width, leaves[0].at[row],
                               reads[1].width);
  pass.done_by_all();
}

}  // namespace helm
