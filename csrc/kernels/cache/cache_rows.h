// Rows of caches as memories keep them: a token's values of one head, on its way to what attention reads.
//
// q4 row: per group of 64 values (the last may be shorter) a scale and a minimum in f16, then per 16 values 8 bytes,
// of which byte i holds the codes of values i (low four bits) and i + 8. Groups never cross tokens or heads, so that
// appending a token quantises its own values once and touches no others.
#pragma once
#include "runtime/pool.h"
#include "formats/shape.h"

namespace helm {

// Bytes of a row of `width` values in 4-bit groups.
inline size_t q4_row_size(size_t width) { return product({(width + 63) / 64, 4}) + product({(width + 15) / 16, 8}); }

// Past tokens of some heads of some sequences; strides in bytes.
struct RowsCall {
  const char* rows;
  size_t row_strides[3];     // from sequence to sequence, head to head, token to token
  char* target;              // transposed: [head_dim][capacity] of a head, else rows of head_dim
  size_t target_strides[3];  // likewise; transposed: from dimension to dimension
  size_t sequences, heads, tokens, head_dim;
  bool groups;    // rows are in 4-bit groups; else in `format`
  Format format;  // of the target
  bool transposed;
};

// Rows to what attention reads, or to plain rows, by all threads of the pool; nothing beyond `tokens` is written.
void turn_rows(Pool& pool, const RowsCall& call);

}  // namespace helm
