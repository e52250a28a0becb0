#include "kernels/linear/linear.h"

#include <algorithm>

#include "kernels/isa.h"

namespace helm {

Range rows_of(const Matrix& m, size_t thread, size_t threads) {
  return rows_of(m, share_of(m.panels(), thread, threads));
}

namespace {

// The most tokens that meet quantised weights as these are streamed. Codes of four bits are widened fast enough for
// BF16 units to pay as early as they do for weights in bf16.
size_t most_streamed_tokens(const Kernels& k, Format format, Activations activations) {
  const bool small = facts_of(format).bytes * 8 < facts_of(format).columns * 5;
  return small && activations == Activations::bf16 ? k.pair_stream_tokens : k.code_stream_tokens;
}

}  // namespace

InputKind input_kind(const Kernels& k, Format format, Activations activations, size_t tokens) {
  if (!quantised(format)) {
    if (format != Format::bf16 || activations != Activations::bf16 || tokens <= k.pair_stream_tokens)
      return InputKind::floats;
    return k.linear_pairs != nullptr ? InputKind::pairs : InputKind::rounded;
  }
  if (activations == Activations::f32) return InputKind::tiled;
  if (tokens <= most_streamed_tokens(k, format, activations)) return InputKind::words;
  if (activations == Activations::bf16) return k.linear_pairs != nullptr ? InputKind::pairs : InputKind::rounded;
  if (activations == Activations::int8)
    return facts_of(format).largest_code <= k.byte_most ? InputKind::bytes : InputKind::small_words;
  return k.word_product ? InputKind::words : InputKind::tiled;
}

namespace {

// Columns of packed blocks to bf16, to nearest even.
void round_packed(const PackArgs& a, size_t limit) {
  const Blocks blocks = blocks_of(a.tokens, limit);
  for (size_t b = 0; b < blocks.count; ++b) {
    const Block block = block_at(blocks, b);
    const size_t width = block.end - block.begin;
    float* values = static_cast<float*>(a.packed) + block.begin * a.columns;
    for (size_t i = a.begin * width; i < a.end * width; ++i) values[i] = widen_bf16(narrow_bf16(values[i]));
  }
}

// How many parts columns are packed in.
size_t parts_of(InputKind kind, size_t columns) {
  const bool plain = kind == InputKind::floats || kind == InputKind::tiled || kind == InputKind::rounded;
  return plain ? columns : runs_of(columns);
}

}  // namespace

Range packed_columns(InputKind kind, size_t columns, size_t thread, size_t threads) {
  const size_t parts = parts_of(kind, columns), width = parts == columns ? 1 : kRun;
  const Range share = share_of(parts, thread, threads);
  return {share.begin * width, std::min(columns, share.end * width)};
}

namespace {

// Parts [share.begin, share.end) of x, whose rows are `stride` floats apart.
const void* pack_parts(const Kernels& k, InputKind kind, Range share, const float* x, size_t stride, size_t tokens,
                       size_t columns, float* packed) {
  if ((kind == InputKind::floats || kind == InputKind::tiled) && tokens == 1) return x;
  const PackArgs args{x, stride, tokens, columns, share.begin, share.end, packed};
  switch (kind) {
    case InputKind::words:
      k.pack_words(args, false);
      break;
    case InputKind::small_words:
      k.pack_words(args, true);
      break;
    case InputKind::bytes:
      k.pack_bytes(args);
      break;
    case InputKind::pairs:
      k.pack_pairs(args);
      break;
    default: {
      const size_t limit = kind == InputKind::floats ? block_limit(k, tokens) : k.product_block;
      k.pack_x(x, stride, tokens, columns, limit, share.begin, share.end, packed);
      if (kind == InputKind::rounded) round_packed(args, limit);
    }
  }
  return packed;
}

}  // namespace

const void* pack_share(const Kernels& k, InputKind kind, size_t thread, size_t threads, const float* x, size_t tokens,
                       size_t columns, float* packed) {
  return pack_parts(k, kind, share_of(parts_of(kind, columns), thread, threads), x, columns, tokens, columns, packed);
}

const void* pack_rows(const Kernels& k, InputKind kind, const float* x, size_t stride, size_t tokens, size_t columns,
                      float* packed) {
  return pack_parts(k, kind, {0, parts_of(kind, columns)}, x, stride, tokens, columns, packed);
}

void multiply(const Kernels& k, InputKind kind, LinearArgs args) {
  args.rounded = kind == InputKind::rounded;
  switch (kind) {
    case InputKind::words:
    case InputKind::small_words:
      return k.linear_words(args);
    case InputKind::bytes:
      return k.linear_bytes(args);
    case InputKind::pairs:
      return k.linear_pairs(args);
    default:
      return k.linear(args);
  }
}

void linear_panels(const Kernels& k, const Matrix& m, Range panels, const void* x, float* y, size_t stride,
                   size_t tokens, bool accumulate, float* scratch) {
  if (panels.begin == panels.end) return;
  y += m.first;
  const LinearArgs args{m.weights, m.format, m.rows,     m.columns,    x,          y,
                        stride,    tokens,   accumulate, panels.begin, panels.end, scratch};
  multiply(k, input_kind(k, m.format, m.activations, tokens), args);
  if (m.bias == nullptr) return;
  const Range rows = rows_of(m, panels);
  for (size_t t = 0; t < tokens; ++t) k.add(y + t * stride + rows.begin, m.bias + rows.begin, rows.end - rows.begin);
}

void linear_share(const Kernels& k, size_t thread, size_t threads, const Matrix& m, const void* x, float* y,
                  size_t stride, size_t tokens, bool accumulate, float* scratch) {
  linear_panels(k, m, share_of(m.panels(), thread, threads), x, y, stride, tokens, accumulate, scratch);
}

void linear_rows(const Kernels& k, Pool& pool, size_t thread, const Matrix& m, const void* x, float* y, size_t stride,
                 size_t tokens, bool accumulate) {
  float* scratch = pool.scratch(thread);
  if (!divided(pool, tokens))
    return linear_share(k, thread, pool.threads(), m, x, y, stride, tokens, accumulate, scratch);
  pool.divide(thread, m.panels(), k.part_panels, m.panels(),
              [&](Range panels) { linear_panels(k, m, panels, x, y, stride, tokens, accumulate, scratch); });
}

// One token's words are packed by each thread for itself, which costs less than a barrier.
void linear_by_all(const Kernels& k, Pool& pool, size_t thread, const Matrix& m, const float* x, float* y,
                   size_t tokens, float* packed) {
  float* scratch = pool.scratch(thread);
  const InputKind kind = input_kind(k, m.format, m.activations, tokens);
  const void* input = tokens == 1 ? pack_share(k, kind, 0, 1, x, 1, m.columns, scratch + kLinearScratch)
                                  : pack_share(k, kind, thread, pool.threads(), x, tokens, m.columns, packed);
  if (tokens > 1) pool.barrier();
  linear_rows(k, pool, thread, m, input, y, m.rows, tokens, false);
}

void linear(Pool& pool, const Matrix& m, const float* x, float* y, size_t tokens) {
  const Kernels& k = kernels();
  PackedInput packed(tokens, m.columns);
  pool.reserve(linear_scratch(m.columns));
  auto work = [&](size_t thread) { linear_by_all(k, pool, thread, m, x, y, tokens, packed.data()); };
  pool.run(work);
}

}  // namespace helm
