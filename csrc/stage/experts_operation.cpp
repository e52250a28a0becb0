#include "stage/experts_operation.h"

#include <cstring>

#include "stage/stage_pass.h"

namespace helm {

void RouterOperation::check(const StageSpec& spec) const {
  helm::check(router);
  expect(reads[0].width == spec.hidden && leaves[0].width == router.experts && leaves[1].width == router.chosen &&
             leaves[2].width == router.chosen,
         "the router leaves logits of all experts, and the chosen with their weights");
  const size_t plain = input_norm ? 4 : 3;  // what it leaves beside a message
  expect(leaves.size() >= plain && (!input_norm || leaves.back().width == spec.hidden),
         name + " keeps what its norm gives");
  expect(!sends || leaves.size() == plain + 1, "a router that sends leaves a message");
  expect(leaves.size() == plain || leaves[3].width == spec.hidden + 2 * router.chosen,
         "a router's message is a row with its experts and their weights");
  if (matrix) check_matrix(name, *matrix, router.experts, spec.hidden);
}

size_t RouterOperation::scratch(const StageSpec& spec) const {
  return std::max(linear_scratch(reads[0].width) + spec.hidden, router_scratch(router));
}

// Its scratch may be where the only row of a norm is: whoever comes later reads that in the workspace.
void RouterOperation::run(StagePass& pass) const {
  pass.linear(*matrix, input(pass), leaves[0].at, router.experts, pass.rows(), false);
  pass.barrier();
  pass.forget_input();
  const Range share = pass.mine(pass.rows());
  if (logit_scale != 1)
    pass.k().scale(leaves[0].at + share.begin * router.experts, logit_scale,
                   (share.end - share.begin) * router.experts);
  route_share(pass.k().mixers(), pass.thread(), pass.threads(), router, leaves[0].at, pass.rows(),
              reinterpret_cast<int32_t*>(leaves[1].at), leaves[2].at, pass.scratch());
  if (sends) send(pass);
  if (record != nullptr) keep(pass);
  pass.done_by_all();
}

const Value& RouterOperation::input(StagePass& pass) const {
  if (!input_norm) return reads[0];
  const Range share = pass.mine(pass.rows());
  const size_t width = reads[0].width;
  const Value& kept = leaves.back();
  for (size_t at = share.begin * width; at < share.end * width; at += width)
    pass.k().norm(input_norm->kind, reads[0].at + at, input_norm->weight, input_norm->bias, input_norm->eps, width,
                  kept.at + at);
  pass.barrier();
  return kept;
}

// Of the rows that this thread has routed.
void RouterOperation::send(StagePass& pass) const {
  const Range share = pass.mine(pass.rows());
  const size_t chosen = router.chosen, hidden = reads[0].width;
  for (size_t row = share.begin; row < share.end; ++row) {
    float* to = leaves[3].at + row * leaves[3].width;
    memcpy(to, reads[0].at + row * hidden, hidden * sizeof(float));
    memcpy(to + hidden, leaves[1].at + row * chosen, chosen * sizeof(float));
    memcpy(to + hidden + chosen, leaves[2].at + row * chosen, chosen * sizeof(float));
  }
}

void RouterOperation::keep(StagePass& pass) const {
  const Range share = pass.mine(pass.rows());
  for (size_t row = share.begin; row < share.end; ++row) {
    const size_t place = pass.sequence(row) * pass.context() + pass.position(row);
    memcpy(record + place * router.chosen, leaves[1].at + row * router.chosen, router.chosen * sizeof(int32_t));
  }
}

void ExpertsOperation::check(const StageSpec& spec) const {
  if (own_sum())
    expect(reads.size() == 1 && reads[0].width == spec.hidden + 2 * chosen && leaves[0].width == spec.hidden,
           "experts of another stage read a message, and leave a sum");
  else
    expect(reads.size() == 3 && reads[0].width == leaves[0].width && (!adds() || leaves[0].width == spec.hidden),
           "experts give hidden states, or what is as wide as their input");
  expect(chosen <= experts, "experts have a weight for every chosen one");
  if (!present()) return;
  const ExpertLayer made = layer();
  helm::check(made);
  expect(own.begin < own.end && own.end <= experts, name + " has a part of its experts");
  for (const ExpertWeights* each : {gate ? &*gate : nullptr, &*up, &*down}) {
    if (each == nullptr) continue;
    expect(slots != nullptr || each->weights.size() == experts, name + " has not as many matrices as experts");
    for (size_t expert = 0; slots == nullptr && expert < experts; ++expert)
      expect(!here(expert) || each->weights[expert] != nullptr, name + " lacks a matrix of an expert");
  }
  expect(made.up.columns == leaves[0].width && made.down.rows == leaves[0].width,
         name + " is of another width than its input");
}

ExpertLayer ExpertsOperation::layer() const {
  ExpertLayer made;
  made.experts = experts, made.own = own, made.slots = slots;
  if (gate) made.gate = gate->matrix;
  made.up = up->matrix, made.down = down->matrix;
  made.activation = activation, made.limit = limit, made.input_scaled = input_scaled, made.activations = activations;
  return made;
}

size_t ExpertsOperation::scratch(const StageSpec&) const { return present() ? experts_scratch(layer()) : 0; }

size_t ExpertsOperation::space(size_t rows) const { return present() ? experts_workspace(layer(), chosen, rows) : 0; }

ExpertInput ExpertsOperation::input() const { return {reads[0].at, reads[0].width}; }

ExpertChoice ExpertsOperation::choice() const {
  if (reads.size() == 3) return {reinterpret_cast<const int32_t*>(reads[1].at), reads[2].at, chosen};
  const float* ids = reads[0].at + reads[0].width - 2 * chosen;
  return {reinterpret_cast<const int32_t*>(ids), ids + chosen, chosen, reads[0].width};
}

void ExpertsOperation::run(StagePass& pass) const {
  pass.forget_input();
  TurnSeconds seconds;
  const bool accumulates = adds() || (slots != nullptr && slots[experts] != 0);
  experts_by_all(pass.k(), pass.pool(), pass.thread(), layer(), choice(), input(), leaves[0].at, pass.rows(),
                 accumulates, pass.space(), {late, arrived.get()}, pass.thread() == 0 ? &seconds : nullptr);
  const size_t parts = gate ? 2 : 1;  // before down
  if (turns) {
    if (gate) pass.credit(2 * parts + 1, seconds.early.gate);
    pass.credit(parts + 2, seconds.early.up);
    pass.credit(parts + 1, seconds.early.down);
  }
  if (gate) pass.credit(parts, seconds.rest.gate);
  pass.credit(1, seconds.rest.up);
  pass.done_by_all();
}

void MemberOperation::run(StagePass& pass) const { pass.done(); }

void CombineOperation::check(const StageSpec& spec) const {
  expect(reads[0].width == spec.hidden && leaves[0].area() == Area::hidden, "sums of experts add to hidden states");
}

void CombineOperation::run(StagePass& pass) const {
  pass.forget_input();
  const Range share = pass.mine(pass.rows());
  const size_t width = reads[0].width;
  pass.k().add(leaves[0].at + share.begin * width, reads[0].at + share.begin * width,
               (share.end - share.begin) * width);
  pass.done_by_all();
}

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
