// EmbeddingOperation: rows of the token table, with learned positions where a model has them.
#pragma once
#include "stage/operation.h"

namespace helm {

class EmbeddingOperation final : public Operation {
 public:
  Matrix table;
  bool looked_up = false;            // `table` holds a pass's own rows, row-major (batch, tokens), not the packed one
  const float* positions = nullptr;  // [context][hidden] or null
  float scale = 1;                   // of the table's rows

  void check(const StageSpec& spec) const override;
  void run(StagePass& pass) const override;
  bool reads_ids() const override { return true; }
};

}  // namespace helm
