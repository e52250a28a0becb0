#include "stage/stage_pass.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace helm {

StagePass::StagePass(Stage& stage, const StageIo& io, size_t thread)
    : stage_(stage),
      spec_(stage.spec_),
      pool_(stage.pool_),
      k_(kernels()),
      io_(io),
      thread_(thread),
      threads_(stage.pool_.threads()),
      scratch_(stage.pool_.scratch(thread)),
      hidden_(stage.base_),
      packed_(stage.base_ + stage.layout_.packed()),
      space_(stage.base_ + stage.layout_.space()),
      last_(now()) {}

void StagePass::done() {
  if (thread_ == 0) {
    const double time = now();
    stage_.seconds_[op_] += time - last_;
    last_ = time;
  }
  ++op_;
}

void StagePass::credit(size_t back, double seconds) {
  if (thread_ != 0 || op_ < io_.begin + back) return;
  stage_.seconds_[op_ - back] += seconds;
  last_ += seconds;
}

void StagePass::done_by_all() {
  pool_.barrier();
  done();
}

void StagePass::chunk(size_t first, size_t count) {
  first_ = first, count_ = count, rows_ = spec_.batch * count, op_ = io_.begin, input_ = {};
  if (io_.source != nullptr && !stage_.embeds(io_.begin)) load();
  while (op_ < io_.end) {
    const Operation& next = stage_.op(op_);
    if (next.of_outputs() && first + count < io_.tokens) break;
    next.run(*this);
  }
  if (io_.target != nullptr && !stage_.chooses(io_.end)) store();
}

// Of hidden states, the columns that this range reads: norms all of them, products those that they add to, and what
// stores whole rows all of them. Others may be on their way here meanwhile.
Range StagePass::columns_read() const {
  Range read{spec_.hidden, 0};
  const auto add = [&](const Range& columns) {
    if (columns.begin < columns.end) read = {std::min(read.begin, columns.begin), std::max(read.end, columns.end)};
  };
  if (io_.target != nullptr && !stage_.chooses(io_.end)) add(stage_.op(io_.end - 1).hidden_left(spec_.hidden));
  for (size_t op = io_.begin; op < io_.end; ++op) add(stage_.op(op).hidden_read(spec_.hidden));
  return read;
}

void StagePass::load() {
  const auto* source = static_cast<const float*>(io_.source);
  const Range share = mine(rows_), columns = columns_read();
  for (size_t row = share.begin; row < share.end && columns.begin < columns.end; ++row)
    memcpy(hidden_ + row * spec_.hidden + columns.begin, source + token(row) * spec_.hidden + columns.begin,
           (columns.end - columns.begin) * sizeof(float));
  pool_.barrier();
}

// The last operation has been stamped; what copying out takes belongs to it. Of a part its own columns are copied:
// others come from where they were made.
void StagePass::store() {
  const Range columns = stage_.op(io_.end - 1).hidden_left(spec_.hidden);
  auto* target = static_cast<float*>(io_.target) + columns.begin;
  const float* source = hidden_ + columns.begin;
  const Range share = mine(rows_);
  for (size_t row = share.begin; row < share.end; ++row)
    memcpy(target + token(row) * spec_.hidden, source + row * spec_.hidden,
           (columns.end - columns.begin) * sizeof(float));
  op_ = io_.end - 1;
  done_by_all();
}

void StagePass::norm(const NormWeights& weights, float* out, bool of_outputs, bool kept) {
  const size_t rows = of_outputs ? outputs() : rows_;
  const auto one = [&](size_t row, float* to) {
    const float* x = hidden_ + (of_outputs ? output_row(row) : row) * spec_.hidden;
    k_.norm(weights.kind, x, weights.weight, weights.bias, weights.eps, spec_.hidden, to);
  };
  if (rows == 1) {
    float* own = (io_.part || kept) && thread_ == 0 ? out : scratch_ + kLinearScratch;
    one(0, own);
    input_ = {own};
    return;
  }
  const Range share = mine(rows);
  for (size_t row = share.begin; row < share.end; ++row) one(row, out + row * spec_.hidden);
  pool_.barrier();
  input_ = {out};
}

// One row's words are packed by each thread for itself, which costs less than a barrier.
const void* StagePass::packed(Input& input, InputKind kind, size_t rows, size_t columns) {
  if (input.packed != nullptr && input.kind == kind) return input.packed;
  if (rows > 1 && input.packed != nullptr) pool_.barrier();  // others may still read what is packed otherwise
  input.kind = kind;
  if (rows == 1) {
    float* own = scratch_ + kLinearScratch + spec_.hidden;
    return input.packed = pack_share(k_, kind, 0, 1, input.x, 1, columns, own);
  }
  input.packed = pack_share(k_, kind, thread_, threads_, input.x, rows, columns, packed_);
  pool_.barrier();
  return input.packed;
}

const void* StagePass::input(const Matrix& m, const Value& x, size_t rows) {
  Input other{x.at};
  if (x.normed() && input_.x == nullptr) input_ = {x.at};
  Input& input = x.normed() ? input_ : other;
  const void* in = packed(input, input_kind(k_, m.format, m.activations, rows), rows, m.columns);
  if (!x.normed()) input_.packed = nullptr;
  return in;
}

void StagePass::linear(const Matrix& m, const Value& x, float* y, size_t width, size_t rows, bool accumulate) {
  linear_share(k_, thread_, threads_, m, input(m, x, rows), y, width, rows, accumulate, scratch_);
}

// Each thread's best row, then the best of those; the lowest index wins a tie.
void StagePass::choose(const Matrix& head, const float* logits) {
  if (io_.target == nullptr) return;
  const Range rows = rows_of_matrix(head);
  Stage::Best* best = stage_.best_.data();
  const size_t sequences = outputs();
  for (size_t b = 0; b < sequences; ++b) {
    const float* own = logits + b * spec_.vocab + rows.begin;
    if (rows.begin >= rows.end) continue;
    const size_t index = k_.argmax(own, rows.end - rows.begin);
    best[thread_ * sequences + b] = {own[index], rows.begin + index};
  }
  pool_.barrier();
  if (thread_ != 0) return;
  for (size_t b = 0; b < sequences; ++b) {
    const Stage::Best* chosen = nullptr;
    for (size_t t = 0; t < threads_; ++t) {
      const Range share = rows_of(head, t, threads_);
      const Stage::Best* candidate = best + t * sequences + b;
      if (share.begin < share.end && (chosen == nullptr || candidate->value > chosen->value)) chosen = candidate;
    }
    static_cast<int32_t*>(io_.target)[b] = static_cast<int32_t>(chosen->index);
  }
}

}  // namespace helm
