// A linear layer shared by the threads of a pool.
#pragma once
#include "kernels.h"
#include "pool.h"

namespace helm {

struct Matrix {
  const void* weights = nullptr;  // packed [ceil(rows / 16)][columns][16]
  Format format = Format::f32;
  size_t rows = 0, columns = 0;
  const float* bias = nullptr;  // [rows] or null
  size_t first = 0;             // the row of the whole operation's output that row 0 is: a part of it

  size_t panels() const { return (rows + kPanel - 1) / kPanel; }
};

// The rows that `thread` computes: whole panels, so that each thread reads one ascending stream.
Range rows_of(const Matrix& m, size_t thread, size_t threads);

// x as `linear_share` wants it: x itself for one token (rows of x are [columns]), else this thread's share of
// `packed` [tokens * columns] is filled; a barrier must follow before `packed` is used.
const float* pack_share(const Kernels& k, size_t thread, size_t threads, const float* x, size_t tokens,
                        size_t columns, float* packed);

// This thread's rows of y[tokens][first .. first + rows) = (or +=) x W^T + bias, where rows of y are `stride` floats
// apart. scratch: kLinearScratch floats.
void linear_share(const Kernels& k, size_t thread, size_t threads, const Matrix& m, const float* x, float* y,
                  size_t stride, size_t tokens, bool accumulate, float* scratch);

// y[tokens][rows] = x[tokens][columns] W^T + bias as one call.
void linear(Pool& pool, const Matrix& m, const float* x, float* y, size_t tokens);

}  // namespace helm
