#include "linear.h"

#include <algorithm>

#include "isa.h"

namespace helm {

Range rows_of(const Matrix& m, size_t thread, size_t threads) {
  const Range panels = share_of(m.panels(), thread, threads);
  return {panels.begin * kPanel, std::min(m.rows, panels.end * kPanel)};
}

const float* pack_share(const Kernels& k, size_t thread, size_t threads, const float* x, size_t tokens,
                        size_t columns, float* packed) {
  if (tokens == 1) return x;
  const Range share = share_of(columns, thread, threads);
  k.pack_x(x, columns, tokens, columns, block_limit(k, tokens), share.begin, share.end, packed);
  return packed;
}

void linear_share(const Kernels& k, size_t thread, size_t threads, const Matrix& m, const float* x, float* y,
                  size_t stride, size_t tokens, bool accumulate, float* scratch) {
  const Range panels = share_of(m.panels(), thread, threads);
  if (panels.begin == panels.end) return;
  y += m.first;
  k.linear({m.weights, m.format, m.rows, m.columns, x, y, stride, tokens, accumulate, panels.begin, panels.end,
            scratch});
  if (m.bias == nullptr) return;
  const Range rows = rows_of(m, thread, threads);
  for (size_t t = 0; t < tokens; ++t)
    k.add(y + t * stride + rows.begin, m.bias + rows.begin, rows.end - rows.begin);
}

void linear(Pool& pool, const Matrix& m, const float* x, float* y, size_t tokens) {
  const Kernels& k = kernels();
  std::vector<float> packed(tokens > 1 ? tokens * m.columns : 0);
  pool.reserve(kLinearScratch);
  auto work = [&](size_t thread) {
    const float* input = pack_share(k, thread, pool.threads(), x, tokens, m.columns, packed.data());
    if (tokens > 1) pool.barrier();
    linear_share(k, thread, pool.threads(), m, input, y, m.rows, tokens, false, pool.scratch(thread));
  };
  pool.run(work);
}

}  // namespace helm
