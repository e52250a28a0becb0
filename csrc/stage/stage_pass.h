// StagePass: one thread's walk through a stage's operations.
#pragma once
#include "runtime/clock.h"
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
// With one row, a norm is cheaper to repeat on every thread than a barrier. Thread 0 stamps each operation after
// its own share, and after the barrier where one follows at once.
class StagePass {
 public:
  StagePass(Stage& stage, const StageIo& io, size_t thread);

  double started() const { return last_; }
  // Tokens [first, first + count) of every sequence through the operations.
  void chunk(size_t first, size_t count);

 private:
  void load();
  void step(const Step& step);
  void embed();
  void attend(const BlockSpec& b);
  void attend_each(const BlockSpec& b);
  void divided(const Step& step);
  void gate(const BlockSpec& b);
  void up(const BlockSpec& b);
  void down(const BlockSpec& b);
  void append(const BlockSpec& b);
  void append_heads(const BlockSpec& b, size_t row, size_t kv_head);
  void append_transposed(const HeadCache& keys, size_t row, const float* key);
  // A new key and value to the row of caches that is theirs.
  void write(const BlockSpec& b, size_t row, size_t kv_head, const float* key, const float* value);
  // A new row to where it is kept beside its cache.
  void keep(const KeptHeads& kept, size_t row, size_t kv_head, const float* values);
  void rotate(float* head, size_t position);
  void final_norm();
  void head();
  void choose();
  void store();
  Range columns_read() const;

  // What linear layers multiply, rows[columns] of f32, and how it has been packed for the last of them.
  struct Input {
    const float* x = nullptr;
    const void* packed = nullptr;
    InputKind kind = InputKind::floats;
  };

  // norm of the hidden states of all rows, or of those whose logits are wanted; visible to this thread.
  Input normed(const NormWeights& weights, bool of_outputs);
  size_t output_row(size_t index) const {
    return io_.ragged != nullptr ? io_.ragged->outputs[index] : index * count_ + count_ - 1;
  }
  // `input` as a matrix of that kind wants it; visible to this thread.
  const void* packed(Input& input, InputKind kind, size_t rows, size_t columns);
  // y[rows][width] = (or +=) m x: `width` is the whole operation's, m may be a part; x is what the last norm left, be
  // it in an earlier range, or given.
  void linear(const Matrix& m, float* y, size_t width, size_t rows, bool accumulate);
  void linear_from(const Matrix& m, const float* x, float* y, size_t width, size_t rows, bool accumulate);
  void multiply(const Matrix& m, Input& input, float* y, size_t width, size_t rows, bool accumulate);
  void done();         // stamps the current operation
  void done_by_all();  // a barrier, then the stamp
  size_t position(size_t row) const {
    return io_.ragged != nullptr ? io_.ragged->positions[row] : io_.past + first_ + row % count_;
  }
  size_t outputs() const { return io_.ragged != nullptr ? io_.ragged->outputs.size() : spec_.batch; }
  Range mine(size_t items) const { return share_of(items, thread_, threads_); }

  Stage& stage_;
  const StageSpec& spec_;
  const Workspace& work_;
  Pool& pool_;
  const Kernels& k_;
  const StageIo& io_;
  size_t thread_, threads_;
  float* scratch_;
  Input input_;  // what the last norm of this range left
  size_t first_ = 0, count_ = 0, rows_ = 0;
  size_t op_ = 0;
  double last_;
};

}  // namespace helm
