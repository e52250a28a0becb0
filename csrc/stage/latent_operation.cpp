#include "stage/latent_operation.h"

#include <algorithm>
#include <cstring>

#include "formats/shape.h"
#include "kernels/mixers.h"
#include "stage/layout.h"
#include "stage/stage_pass.h"

namespace helm {

void LatentAppendOperation::check(const StageSpec&) const {
  check_shape(shape);
  expect(shape.kv_heads == 1 && rotated < shape.head_dim, name + " caches one row of a token, the last part rotated");
  expect(rotated % 2 == 0, name + " rotates pairs of dimensions");
  expect(reads[0].width == shape.heads * (plain + rotated) && reads[1].width == shape.head_dim &&
             leaves[0].width == shape.q_width(),
         name + " has queries and latent vectors of other widths than its heads");
  expect((cos == nullptr) == (sin == nullptr), "rotation needs cos and sin");
}

// Query heads of a row follow each other, and then its key.
void LatentAppendOperation::run(StagePass& pass) const {
  const size_t items = shape.heads + 1;
  const Range share = pass.mine(pass.rows() * items);
  for (size_t item = share.begin; item < share.end; ++item) {
    const size_t row = item / items, head = item % items;
    head < shape.heads ? query(pass, row, head) : key(pass, row);
  }
  pass.done_by_all();
}

void LatentAppendOperation::turn(StagePass& pass, const float* x, size_t position, float* out) const {
  const size_t half = rotated / 2;
  if (cos != nullptr && neighbours)
    return pass.k().mixers().rope_pairs(x, cos + position * half, sin + position * half, half, out);
  if (x != out) std::copy_n(x, rotated, out);
  if (cos != nullptr) pass.k().rope(out, cos + position * half, sin + position * half, half);
}

void LatentAppendOperation::query(StagePass& pass, size_t row, size_t head) const {
  float* q = reads[0].at + (row * shape.heads + head) * (plain + rotated);
  float* to = leaves[0].at + (row * shape.heads + head) * shape.head_dim + latent();
  pass.k().scale(q, factor, plain);
  turn(pass, q + plain, pass.position(row), to);
  pass.k().scale(to, factor, rotated);
}

void LatentAppendOperation::key(StagePass& pass, size_t row) const {
  float* x = reads[1].at + row * shape.head_dim;
  pass.k().norm(norm->kind, x, norm->weight, norm->bias, norm->eps, latent(), x);
  turn(pass, x + latent(), pass.position(row), x + latent());
  if (char* to = cached(pass, row)) pass.k().write_row(shape.format, x, shape.head_dim, to);
}

// Where the row of a token belongs; null where another device keeps it.
char* LatentAppendOperation::cached(StagePass& pass, size_t row) const {
  const Ragged* ragged = pass.io().ragged;
  const size_t at = ragged != nullptr ? ragged->cached[row] : pass.position(row) % shape.capacity;
  if (at == kNowhere) return nullptr;
  const bool passing = at >= shape.capacity;
  const HeadCache& keys = (passing ? caches.passing_keys : caches.keys)[0];
  const size_t place = passing ? at - shape.capacity : at;
  return keys.data + pass.sequence(row) * keys.sequence + place * row_size(shape.format, shape.head_dim);
}

void GroupedOperation::check(const StageSpec&) const {
  expect(groups > 0 && reads[0].width % groups == 0 && leaves[0].width % groups == 0,
         name + " has values that its groups do not divide");
  if (!matrix) return;
  expect(matrix->rows % (groups * kPanel) == 0 && matrix->bias == nullptr && matrix->first == 0,
         name + " has whole panels of rows for every group, no bias, and is not a part");
  expect(matrix->columns <= reads[0].width / groups && matrix->rows <= leaves[0].width,
         name + " is of another width than its values");
}

size_t GroupedOperation::scratch(const StageSpec& spec) const {
  return kLinearScratch + (matrix ? product({chunk_rows(spec), round_up(input_size(matrix->columns), 16)}) : 0);
}

// Threads pack the inputs of their groups for themselves, which takes less than a barrier: a group has many rows.
void GroupedOperation::run(StagePass& pass) const {
  const size_t per_group = panels();
  const Range share = pass.mine(groups * per_group);
  for (size_t at = share.begin; at < share.end;) {
    const size_t group = at / per_group, end = std::min(share.end, (group + 1) * per_group);
    multiply_panels(pass, group, {at - group * per_group, end - group * per_group});
    at = end;
  }
  pass.done_by_all();
}

void GroupedOperation::multiply_panels(StagePass& pass, size_t group, Range own) const {
  const Matrix& m = *matrix;
  const size_t rows = m.rows / groups, count = pass.rows(), width = reads[0].width, stride = leaves[0].width;
  const InputKind kind = input_kind(pass.k(), m.format, m.activations, count);
  const float* x = reads[0].at + group * (width / groups);
  const void* input = pack_rows(pass.k(), kind, x, width, count, m.columns, pass.scratch() + kLinearScratch);
  const char* weights = static_cast<const char*>(m.weights) + group * packed_size(m.format, rows, m.columns);
  multiply(pass.k(), kind,
           {weights, m.format, rows, m.columns, input, leaves[0].at + group * (stride / groups), stride, count, false,
            own.begin, own.end, pass.scratch()});
}

}  // namespace helm
