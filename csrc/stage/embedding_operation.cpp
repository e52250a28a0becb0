#include "stage/embedding_operation.h"

#include "formats/pack.h"
#include "stage/stage_pass.h"

namespace helm {

void EmbeddingOperation::check(const StageSpec& spec) const {
  check_matrix(name, table, looked_up ? spec.batch * spec.max_tokens : spec.vocab, spec.hidden);
}

void EmbeddingOperation::run(StagePass& pass) const {
  const auto* ids = static_cast<const int32_t*>(pass.io().source);
  const Range share = pass.mine(pass.rows());
  const size_t width = leaves[0].width;
  for (size_t row = share.begin; row < share.end; ++row) {
    const size_t at = pass.token(row);
    float* hidden = leaves[0].at + row * width;
    if (looked_up)
      widen_row(static_cast<const char*>(table.weights) + at * row_size(table.format, width), table.format, width,
                hidden);
    else
      unpack_row(table.weights, table.format, width, static_cast<size_t>(ids[at]), hidden);
    if (scale != 1) pass.k().scale(hidden, scale, width);
    if (positions != nullptr) pass.k().add(hidden, positions + pass.position(row) * width, width);
  }
  pass.done_by_all();
}

}  // namespace helm
