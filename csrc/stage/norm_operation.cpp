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

}  // namespace helm
