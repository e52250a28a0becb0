#include "stage/norm_sum_operation.h"

#include "stage/stage_pass.h"

namespace helm {

void NormSumOperation::check(const StageSpec&) const {
  expect(reads[0].width == leaves[0].width, name + " norms a value of another width than it adds to");
  expect(reads[0].width <= kLinearScratch, name + " is wider than what a thread can keep");
}

// Only the scratch of products is used: that of the last norm, behind it, may still be read.
void NormSumOperation::run(StagePass& pass) const {
  const Range share = pass.mine(pass.rows());
  const size_t width = leaves[0].width;
  for (size_t row = share.begin; row < share.end; ++row) {
    float* target = leaves[0].at + row * width;
    float* normed = adds ? pass.scratch() : target;
    pass.k().norm(weights->kind, reads[0].at + row * width, weights->weight, weights->bias, weights->eps, width,
                  normed);
    if (adds) pass.k().add(target, normed, width);
    if (factor != nullptr) pass.k().scale(target, *factor, width);
  }
  pass.done_by_all();
}

}  // namespace helm
