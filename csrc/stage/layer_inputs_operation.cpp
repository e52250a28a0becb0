#include "stage/layer_inputs_operation.h"

#include "formats/pack.h"
#include "stage/stage_pass.h"

namespace helm {

void LayerTableOperation::check(const StageSpec& spec) const {
  const size_t rows = looked_up ? spec.batch * spec.max_tokens : table.rows;
  check_matrix(name, table, rows, inputs.width);
  expect(looked_up || table.rows >= spec.vocab, name + " has no rows for some tokens of the vocabulary");
}

void LayerTableOperation::run(StagePass& pass) const {
  const auto* ids = static_cast<const int32_t*>(pass.io().source);
  const Range share = pass.mine(pass.rows());
  for (size_t row = share.begin; row < share.end; ++row) {
    const size_t at = pass.token(row);
    float* to = inputs.of(at);
    if (looked_up)
      widen_row(static_cast<const char*>(table.weights) + at * row_size(table.format, inputs.width), table.format,
                inputs.width, to);
    else
      unpack_row(table.weights, table.format, inputs.width, static_cast<size_t>(ids[at]), to);
    pass.k().scale(to, scale, inputs.width);
  }
  pass.done_by_all();
}

void LayerInputsOperation::check(const StageSpec&) const {
  expect(reads[0].width == inputs.width, name + " reads another width than that of layers' inputs");
  expect(part > 0 && inputs.width % part == 0, name + " has parts of unequal widths");
}

void LayerInputsOperation::run(StagePass& pass) const {
  const Range share = pass.mine(pass.rows());
  float* normed = pass.scratch();
  for (size_t row = share.begin; row < share.end; ++row) {
    const float* projected = reads[0].at + row * inputs.width;
    float* to = inputs.of(pass.token(row));
    for (size_t begin = 0; begin < inputs.width; begin += part) {
      pass.k().norm(weights->kind, projected + begin, weights->weight, weights->bias, weights->eps, part, normed);
      pass.k().add(to + begin, normed, part);
    }
    pass.k().scale(to, scale, inputs.width);
  }
  pass.done_by_all();
}

}  // namespace helm
