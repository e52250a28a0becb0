#include "kernels/cache/cache_rows.h"

#include <algorithm>

#include "kernels/isa.h"

namespace helm {
namespace {

constexpr size_t kTokens = 64;  // the grain in which a head's past is shared: whole lines of transposed keys

}  // namespace

void turn_rows(Pool& pool, const RowsCall& c) {
  const Kernels& k = kernels();
  const size_t pieces = (c.tokens + kTokens - 1) / kTokens;
  auto work = [&](size_t thread) {
    const Range share = share_of(c.sequences * c.heads * pieces, thread, pool.threads());
    for (size_t unit = share.begin; unit < share.end;) {
      const size_t head = unit / pieces, piece = unit % pieces;
      const size_t last = std::min(pieces, piece + share.end - unit), first = piece * kTokens;
      const size_t width = c.transposed ? size_of(c.format) : c.target_strides[2];
      k.turn_rows(
          {c.rows + head / c.heads * c.row_strides[0] + head % c.heads * c.row_strides[1] + first * c.row_strides[2],
           c.row_strides[2], std::min(c.tokens, last * kTokens) - first, c.head_dim, c.groups, c.format,
           c.target + head / c.heads * c.target_strides[0] + head % c.heads * c.target_strides[1] + first * width,
           c.target_strides[2], c.transposed});
      unit += last - piece;
    }
  };
  pool.run(work);
}

}  // namespace helm
