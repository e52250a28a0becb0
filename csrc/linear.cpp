#include "linear.h"

#include <algorithm>

#include "isa.h"

namespace helm {

Range rows_of(const Matrix& m, size_t thread, size_t threads) {
  const Range panels = share_of(m.panels(), thread, threads);
  return {panels.begin * kPanel, std::min(m.rows, panels.end * kPanel)};
}

InputKind input_kind(const Kernels& k, Format format, size_t tokens) {
  if (takes_words(k, format, tokens)) return InputKind::words;
  return takes_pairs(k, format, tokens) ? InputKind::pairs : InputKind::floats;
}

const void* pack_share(const Kernels& k, InputKind kind, size_t thread, size_t threads, const float* x, size_t tokens,
                       size_t columns, float* packed) {
  if (kind == InputKind::words) {
    auto* words = reinterpret_cast<int32_t*>(packed);
    const Range share = share_of((columns + kRun - 1) / kRun, thread, threads);
    k.pack_words(x, columns, tokens, columns, share.begin, share.end, words);
    return words;
  }
  if (kind == InputKind::pairs) {
    auto* pairs = reinterpret_cast<int32_t*>(packed);
    const Range share = share_of((columns + 1) / 2, thread, threads);
    k.pack_pairs(x, columns, tokens, columns, share.begin, share.end, pairs);
    return pairs;
  }
  if (tokens == 1) return x;
  const Range share = share_of(columns, thread, threads);
  k.pack_x(x, columns, tokens, columns, block_limit(k, tokens), share.begin, share.end, packed);
  return packed;
}

void linear_share(const Kernels& k, size_t thread, size_t threads, const Matrix& m, const void* x, float* y,
                  size_t stride, size_t tokens, bool accumulate, float* scratch) {
  const Range panels = share_of(m.panels(), thread, threads);
  if (panels.begin == panels.end) return;
  y += m.first;
  const LinearArgs args{m.weights, m.format,   m.rows,       m.columns,  x,      y, stride,
                        tokens,    accumulate, panels.begin, panels.end, scratch};
  switch (input_kind(k, m.format, tokens)) {
    case InputKind::words: k.linear_words(args); break;
    case InputKind::pairs: k.linear_pairs(args); break;
    default: k.linear(args);
  }
  if (m.bias == nullptr) return;
  const Range rows = rows_of(m, thread, threads);
  for (size_t t = 0; t < tokens; ++t)
    k.add(y + t * stride + rows.begin, m.bias + rows.begin, rows.end - rows.begin);
}

// One token's words are packed by each thread for itself, which costs less than a barrier.
void linear_by_all(const Kernels& k, Pool& pool, size_t thread, const Matrix& m, const float* x, float* y,
                   size_t tokens, float* packed) {
  float* scratch = pool.scratch(thread);
  const InputKind kind = input_kind(k, m.format, tokens);
  const void* input = tokens == 1 ? pack_share(k, kind, 0, 1, x, 1, m.columns, scratch + kLinearScratch)
                                  : pack_share(k, kind, thread, pool.threads(), x, tokens, m.columns, packed);
  if (tokens > 1) pool.barrier();
  linear_share(k, thread, pool.threads(), m, input, y, m.rows, tokens, false, scratch);
}

void linear(Pool& pool, const Matrix& m, const float* x, float* y, size_t tokens) {
  const Kernels& k = kernels();
  std::vector<float> packed(tokens > 1 ? tokens * input_size(m.columns) : 0);
  pool.reserve(linear_scratch(m.columns));
  auto work = [&](size_t thread) { linear_by_all(k, pool, thread, m, x, y, tokens, packed.data()); };
  pool.run(work);
}

}  // namespace helm
