#include "stage/linear_operation.h"

#include <cmath>

#include "kernels/mixers.h"
#include "stage/stage_pass.h"

namespace helm {

void LinearOperation::check(const StageSpec& spec) const {
  check_part(name, matrix, leaves[0].width, reads[0].width);
  expect(!adds || (leaves[0].area() == Area::hidden && leaves[0].width == spec.hidden),
         name + " adds to hidden states");
  expect(adds || leaves[0].area() == Area::inner, name + " leaves a value of its own");
  expect(reads.size() == 1 || (activation && reads[1].width == leaves[0].width), name + " has a gate of its own width");
  expect(!adds || reads[0].area() != Area::hidden, name + " adds to what it reads");
  expect(!inputs || (activation && at + leaves[0].width <= inputs->width),
         name + " has an activation, and columns of layers' inputs");
}

size_t LinearOperation::scratch(const StageSpec& spec) const { return linear_scratch(reads[0].width) + spec.hidden; }

Range LinearOperation::hidden_read(size_t hidden) const {
  if (reads[0].area() == Area::hidden) return {0, hidden};
  return adds && matrix ? Range{matrix->first, matrix->first + matrix->rows} : Range{0, 0};
}

Range LinearOperation::hidden_left(size_t hidden) const { return adds ? hidden_read(hidden) : Range{0, hidden}; }

void LinearOperation::run(StagePass& pass) const {
  const bool shared = divided(pass.pool(), pass.rows());
  const void* x = pass.input(*matrix, reads[0], pass.rows());
  if (factor != 1 && adds) {
    scale(pass, 1 / factor);
    if (shared) pass.barrier();
  }
  linear_rows(pass.k(), pass.pool(), pass.thread(), *matrix, x, leaves[0].at, leaves[0].width, pass.rows(), adds);
  if (shared && (factor != 1 || activation)) pass.barrier();  // others have computed rows of this share, or of a gate's
  if (factor != 1) scale(pass, factor);
  if (activation) activate(pass);
  shares ? pass.done_by_all() : pass.done();
}

// Of this thread's share of the rows of the matrix, which nobody else reads meanwhile.
void LinearOperation::scale(StagePass& pass, float by) const {
  const Range own = pass.rows_of_matrix(*matrix);
  for (size_t row = 0; row < pass.rows(); ++row) {
    float* values = leaves[0].at + row * leaves[0].width + matrix->first;
    for (size_t i = own.begin; i < own.end; ++i) values[i] *= by;
  }
}

// Of rows of that share.
void LinearOperation::activate(StagePass& pass) const {
  const Range own = pass.rows_of_matrix(*matrix);
  const float* gate = reads.size() > 1 ? reads[1].at : nullptr;
  for (size_t row = 0; row < pass.rows() && own.begin < own.end; ++row) {
    const size_t begin = row * leaves[0].width + matrix->first + own.begin;
    pass.k().activate(*activation, gate != nullptr ? gate + begin : nullptr, leaves[0].at + begin, own.end - own.begin);
    if (inputs)
      pass.k().mixers().multiply(leaves[0].at + begin, inputs->of(pass.token(row)) + at + matrix->first + own.begin,
                                 own.end - own.begin);
  }
}

void HeadOperation::check(const StageSpec& spec) const {
  check_matrix(name, matrix, spec.vocab, spec.hidden);
  expect(leaves[0].area() == Area::logits && leaves[0].width == spec.vocab, "the head leaves logits");
}

size_t HeadOperation::scratch(const StageSpec& spec) const { return linear_scratch(reads[0].width) + spec.hidden; }

void HeadOperation::run(StagePass& pass) const {
  pass.linear(matrix, reads[0], leaves[0].at, leaves[0].width, pass.outputs(), false);
  if (factor != 1 || softcap > 0) bound(pass);
  pass.choose(matrix, leaves[0].at);
  pass.done();
}

// Of the rows of the matrix that this thread has multiplied.
void HeadOperation::bound(StagePass& pass) const {
  const Range own = pass.rows_of_matrix(matrix);
  for (size_t row = 0; row < pass.outputs(); ++row)
    for (size_t i = own.begin; i < own.end; ++i) {
      float& logit = leaves[0].at[row * leaves[0].width + i];
      logit *= factor;
      if (softcap > 0) logit = softcap * std::tanh(logit / softcap);
    }
}

}  // namespace helm
