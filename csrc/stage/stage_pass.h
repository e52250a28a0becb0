// StagePass: one thread's walk through a stage's operations.
#pragma once
#include <algorithm>

#include "kernels/isa.h"
#include "runtime/clock.h"
#include "stage/norm_operation.h"
#include "stage/stage.h"

namespace helm {

struct StageIo {
  const void* source;
  void* target;
  size_t tokens, past, begin, end;  // operations [begin, end)
  bool part;                        // other ranges come before or after: what is live must be in the workspace
  const Ragged* ragged;             // whose first `tokens` rows they are; or null
};

// Barriers stand where data crosses threads: after the values of a layer are written and before they are read.
// Thread 0 stamps each operation after its own share, and after the barrier where one follows at once.
class StagePass {
 public:
  StagePass(Stage& stage, const StageIo& io, size_t thread);

  double started() const { return last_; }
  // Tokens [first, first + count) of every sequence through the operations.
  void chunk(size_t first, size_t count);

  const StageIo& io() const { return io_; }
  const Kernels& k() const { return k_; }
  Pool& pool() const { return pool_; }
  size_t thread() const { return thread_; }
  size_t threads() const { return threads_; }
  float* scratch() const { return scratch_; }
  std::vector<KvSpan>& spans() const { return stage_.spans_[thread_]; }

  size_t first() const { return first_; }
  size_t count() const { return count_; }
  size_t rows() const { return rows_; }
  size_t batch() const { return spec_.batch; }
  size_t context() const { return spec_.context; }
  size_t sequence(size_t row) const { return row / count_; }
  // The index of a row among those of all tokens of the pass, and its position.
  size_t token(size_t row) const { return row / count_ * io_.tokens + first_ + row % count_; }
  size_t position(size_t row) const {
    return io_.ragged != nullptr ? io_.ragged->positions[row] : io_.past + first_ + row % count_;
  }
  size_t outputs() const { return io_.ragged != nullptr ? io_.ragged->outputs.size() : spec_.batch * last_tokens(); }
  Range mine(size_t items) const { return share_of(items, thread_, threads_); }
  Range rows_of_matrix(const Matrix& m) const { return rows_of(m, thread_, threads_); }

  // Norm of the hidden states of all rows to `out`, or of those whose logits are wanted; visible to this thread, and
  // where it is `kept` to all of them after the next barrier.
  void norm(const NormWeights& weights, float* out, bool of_outputs, bool kept);
  // x as products of all rows with m take it. What a norm has left, be it in an earlier range, is packed once for all
  // products that follow each other.
  const void* input(const Matrix& m, const Value& x, size_t rows);
  // This thread's share of y[rows][width] = (or +=) m x: `width` is the whole operation's, m may be a part.
  void linear(const Matrix& m, const Value& x, float* y, size_t width, size_t rows, bool accumulate);
  // Products read what a norm has left in the workspace from now on: its copy, or what is packed, will be written over.
  void forget_input() { input_ = {}; }
  float* space() const { return space_; }
  // Greedy, where chosen tokens are wanted.
  void choose(const Matrix& head, const float* logits);

  void barrier() { pool_.barrier(); }
  // Of the time since the last stamp, gives seconds to the operation that is so many before the current one; of a
  // range that begins later they stay with the current one.
  void credit(size_t back, double seconds);
  void done();         // stamps the current operation
  void done_by_all();  // a barrier, then the stamp

 private:
  void load();
  void store();
  Range columns_read() const;
  // Of every sequence, those that yield logits.
  size_t last_tokens() const { return std::min(spec_.last, count_); }
  size_t output_row(size_t index) const {
    if (io_.ragged != nullptr) return io_.ragged->outputs[index];
    return index / last_tokens() * count_ + count_ - last_tokens() + index % last_tokens();
  }

  // What linear layers multiply, rows[columns] of f32, and how it has been packed for the last of them.
  struct Input {
    const float* x = nullptr;
    const void* packed = nullptr;
    InputKind kind = InputKind::floats;
  };

  // `input` as a matrix of that kind wants it; visible to this thread.
  const void* packed(Input& input, InputKind kind, size_t rows, size_t columns);

  Stage& stage_;
  const StageSpec& spec_;
  Pool& pool_;
  const Kernels& k_;
  const StageIo& io_;
  size_t thread_, threads_;
  float *scratch_, *hidden_, *packed_, *space_;
  Input input_;  // what the last norm of this range left
  size_t first_ = 0, count_ = 0, rows_ = 0;
  size_t op_ = 0;
  double last_;
};

}  // namespace helm
