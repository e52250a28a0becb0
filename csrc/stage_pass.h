// StagePass: one thread's walk through a stage's operations.
#pragma once
#include "clock.h"
#include "stage.h"

namespace helm {

struct StageIo {
  const void* source;
  void* target;
  size_t tokens, past, begin, end;  // operations [begin, end)
  bool part;                        // other ranges come before or after: what is live must be in the workspace
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
  void divided(const Step& step);
  void gate(const BlockSpec& b);
  void up(const BlockSpec& b);
  void down(const BlockSpec& b);
  void append(const BlockSpec& b);
  void append_heads(const BlockSpec& b, size_t row, size_t kv_head);
  void append_transposed(const HeadCache& keys, size_t row, const float* key);
  // A new row to where it is kept beside its cache.
  void keep(const KeptHeads& kept, size_t row, size_t kv_head, const float* values);
  void rotate(float* head, size_t position);
  void final_norm();
  void head();
  void choose();
  void store();

  // norm of `rows` rows `stride` floats apart, packed for a linear layer; visible to this thread.
  const float* normed(const NormWeights& weights, const float* x, size_t stride, size_t rows);
  // What the last norm left, be it in an earlier range.
  const float* input(size_t rows);
  // x[rows][columns], packed for a linear layer; visible to this thread.
  const float* packed(const float* x, size_t rows, size_t columns);
  // y[rows][width] = (or +=) m x: `width` is the whole operation's, m may be a part.
  void linear(const Matrix& m, const float* x, float* y, size_t width, size_t rows, bool accumulate);
  void done();          // stamps the current operation
  void done_by_all();   // a barrier, then the stamp
  size_t position(size_t row) const { return io_.past + first_ + row % count_; }
  Range mine(size_t items) const { return share_of(items, thread_, threads_); }

  Stage& stage_;
  const StageSpec& spec_;
  const Workspace& work_;
  Pool& pool_;
  const Kernels& k_;
  const StageIo& io_;
  size_t thread_, threads_;
  float* scratch_;
  const float* x_ = nullptr;  // what the last norm of this range left
  size_t first_ = 0, count_ = 0, rows_ = 0;
  size_t op_ = 0;
  double last_;
};

}  // namespace helm
