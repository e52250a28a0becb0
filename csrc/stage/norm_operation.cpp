#include "stage/norm_operation.h"

#include "stage/stage_pass.h"

namespace helm {

void NormOperation::check(const StageSpec& spec) const {
  expect(reads[0].width == spec.hidden && leaves[0].width == spec.hidden, name + " is of another width than hidden");
}

void NormOperation::run(StagePass& pass) const {
  pass.norm(*weights, leaves[0].at, last, kept);
  pass.done();
}

void ValueNormOperation::check(const StageSpec&) const {
  expect(reads[0].width == leaves[0].width && leaves[0].area() == Area::inner,
         name + " leaves a value of its own, as wide as what it reads");
}

void ValueNormOperation::run(StagePass& pass) const {
  const Range share = pass.mine(pass.rows());
  const size_t width = reads[0].width;
  for (size_t row = share.begin; row < share.end; ++row)
    pass.k().norm(weights->kind, reads[0].at + row * width, weights->weight, weights->bias, weights->eps, width,
                  leaves[0].at + row * width);
  pass.done_by_all();
}

}  // namespace helm
