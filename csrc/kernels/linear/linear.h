// A linear layer shared by the threads of a pool.
#pragma once
#include <vector>

#include "kernels/kernels.h"
#include "runtime/pool.h"

namespace helm {

struct Matrix {
  const void* weights = nullptr;  // packed: see pack.h
  Format format = Format::f32;
  size_t rows = 0, columns = 0;
  const float* bias = nullptr;  // [rows] or null
  // Where many tokens meet it. bf16: of weights in bf16 and of quantised ones, whose values are rounded to bf16 too;
  // int16, int8: of quantised weights, whole numbers under a scale per 32 columns; other weights take f32. Up to
  // Kernels::pair_stream_tokens (code_stream_tokens; of four bits meeting bf16 the former), where weights are widened
  // as they are read, bf16 weights take f32 and quantised ones 16 bits, if not f32.
  Activations activations = Activations::int16;
  size_t first = 0;  // the row of the whole operation's output that row 0 is: a part of it

  size_t panels() const { return (rows + kPanel - 1) / kPanel; }
};

// The rows that are the share of `thread`: whole panels, so that each thread reads one ascending stream.
Range rows_of(const Matrix& m, size_t thread, size_t threads);

// What matrices multiply: f32 in blocks of tokens (one token's is x itself), in blocks as tiles take them however few
// the tokens, the latter rounded to bf16 (values of quantised weights are rounded as well), numbers of 16 bits, those
// with no more than 8 bits in them, numbers of 8 bits, or bf16 for BF16 units.
enum class InputKind { floats, tiled, rounded, words, small_words, bytes, pairs };

InputKind input_kind(const Kernels& k, Format format, Activations activations, size_t tokens);

// Floats that hold one token's input of any kind.
constexpr size_t input_size(size_t columns) { return words_size(columns) > columns ? words_size(columns) : columns; }

// Room for the input of several tokens, from a line of the cache on, as tiles read it fastest; none for one token.
class PackedInput {
 public:
  PackedInput(size_t tokens, size_t columns)
      : lines_(tokens > 1 ? round_up(tokens * input_size(columns), 16) / 16 : 0) {}
  float* data() { return reinterpret_cast<float*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    float values[16];
  };
  std::vector<Line> lines_;
};

// The columns of x that pack_share reads for a thread.
Range packed_columns(InputKind kind, size_t columns, size_t thread, size_t threads);

// x[tokens][columns] as `linear_share` wants it: x itself for one token's floats, else this thread's share of `packed`
// (tokens * input_size(columns) floats) is filled; a barrier must follow before `packed` is used.
const void* pack_share(const Kernels& k, InputKind kind, size_t thread, size_t threads, const float* x, size_t tokens,
                       size_t columns, float* packed);

// The whole of it for one thread, where rows of x are `stride` floats apart.
const void* pack_rows(const Kernels& k, InputKind kind, const float* x, size_t stride, size_t tokens, size_t columns,
                      float* packed);

// The kernel that multiplies inputs of a kind.
void multiply(const Kernels& k, InputKind kind, LinearArgs args);

// Whether threads divide `linear_rows` of so many tokens as they get on. With fewer each reads an ascending stream of
// weights, its share, and takes about as long as that does.
inline bool divided(const Pool& pool, size_t tokens) { return tokens >= 64 && pool.threads() > 1; }

// Panels [panels.begin, panels.end) of y[tokens][first .. first + rows) = (or +=) x W^T + bias, where rows of y are
// `stride` floats apart. scratch: kLinearScratch floats.
void linear_panels(const Kernels& k, const Matrix& m, Range panels, const void* x, float* y, size_t stride,
                   size_t tokens, bool accumulate, float* scratch);

// The rows of a matrix that are in some of its panels.
inline Range rows_of(const Matrix& m, Range panels) {
  return {panels.begin * kPanel, panels.end * kPanel < m.rows ? panels.end * kPanel : m.rows};
}

// `linear_panels` of a thread's share of the panels: nobody else computes them, however many tokens there are.
void linear_share(const Kernels& k, size_t thread, size_t threads, const Matrix& m, const void* x, float* y,
                  size_t stride, size_t tokens, bool accumulate, float* scratch);

// `linear_panels` of all panels, if every thread of the pool calls this: where the product is `divided` a thread may
// compute rows of another's share, and a barrier must follow before they are read.
void linear_rows(const Kernels& k, Pool& pool, size_t thread, const Matrix& m, const void* x, float* y, size_t stride,
                 size_t tokens, bool accumulate);

// y[tokens][rows] = x[tokens][columns] W^T + bias by all threads of a pool, each of which calls this; `packed`:
// tokens * input_size(columns) floats, unused for one token. Threads have linear_scratch(columns) floats.
void linear_by_all(const Kernels& k, Pool& pool, size_t thread, const Matrix& m, const float* x, float* y,
                   size_t tokens, float* packed);
constexpr size_t linear_scratch(size_t columns) { return kLinearScratch + words_size(columns); }

// The same as one call.
void linear(Pool& pool, const Matrix& m, const float* x, float* y, size_t tokens);

}  // namespace helm
