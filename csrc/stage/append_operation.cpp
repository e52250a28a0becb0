#include "stage/append_operation.h"

#include <algorithm>
#include <cstring>

#include "formats/shape.h"
#include "stage/stage_pass.h"

namespace helm {

bool cover(const HeadCaches& caches, size_t begin, size_t end) {
  if (caches.empty()) return false;
  return std::all_of(caches.begin() + begin, caches.begin() + end,
                     [](const HeadCache& c) { return c.data != nullptr; });
}

void check_shape(const Attention& shape) {
  expect(shape.heads % shape.kv_heads == 0, "heads must be a multiple of kv_heads");
  expect(divides(shape.format, shape.head_dim),
         "kv_format q8_0 needs a head_dim that is a multiple of 32, not " + std::to_string(shape.head_dim));
}

void check_ring(const StageSpec& spec, const Attention& shape) {
  if (spec.sequences > 0 || spec.paged || shape.capacity >= spec.context) return;
  const size_t together = std::min(spec.max_tokens, chunk_tokens(spec));
  expect(shape.window > 0 && shape.capacity + 1 >= shape.window + together,
         "a cache of " + std::to_string(shape.capacity) + " rows holds neither all positions nor a window of " +
             std::to_string(shape.window) + " beside " + std::to_string(together) + " tokens");
}

void AppendOperation::check(const StageSpec& spec) const {
  check_shape(shape);
  check_ring(spec, shape);
  expect(rotary_dim % 2 == 0 && rotary_dim <= shape.head_dim, "rotary_dim must be even and at most head_dim");
  expect(rotary_dim == 0 || (cos != nullptr && sin != nullptr), "rotation needs cos and sin");
  expect(
      reads[0].width == (gated ? 2 : 1) * shape.q_width() &&
          std::all_of(reads.begin() + 1, reads.end(), [this](const Value& v) { return v.width == shape.kv_width(); }),
      "queries, keys and values are of other widths than their heads");
  expect(!gated || (leaves.size() == 1 && leaves[0].width == shape.q_width() && !over_projection && !transposed),
         "gated queries are normed head by head, left in a value of their own, and attended to in one operation");
  expect(!transposed || !quantised(shape.format), "divided attention reads f32, f16 and bf16, not q8_0");
  expect(!transposed || !spec.paged, "paged attention cannot be divided");
  expect(!transposed || spec.sequences == 0,
         "rows of several sequences have batch 1, attention in one operation and caches at home");
}

// Transposed, a head's rows follow each other, so that cache lines of K stay while its positions are filled.
void AppendOperation::run(StagePass& pass) const {
  if (over_projection) norm_projections(pass);
  const size_t kv_heads = shape.kv_heads, rows = pass.rows();
  const Range share = pass.mine(rows * kv_heads);
  for (size_t item = share.begin; item < share.end; ++item)
    transposed ? heads(pass, item % rows, item / rows) : heads(pass, item / kv_heads, item % kv_heads);
  pass.done_by_all();
}

void AppendOperation::norm_projections(StagePass& pass) const {
  const Range share = pass.mine(pass.rows());
  for (size_t row = share.begin; row < share.end; ++row)
    for (size_t side = 0; side < std::min<size_t>(reads.size(), 2); ++side) {
      const Value& value = reads[side];
      const std::optional<NormWeights>& norm = side == 0 ? q_norm : k_norm;
      float* x = value.at + row * value.width;
      if (norm) pass.k().norm(norm->kind, x, norm->weight, norm->bias, norm->eps, value.width, x);
    }
  pass.barrier();
}

void AppendOperation::prepare(StagePass& pass, float* head, const std::optional<NormWeights>& weights,
                              size_t position) const {
  if (weights && !over_projection)
    pass.k().norm(weights->kind, head, weights->weight, weights->bias, weights->eps, shape.head_dim, head);
  const size_t half = rotary_dim / 2;
  if (half > 0) pass.k().rope(head, cos + position * half, sin + position * half, half);
}

const float* AppendOperation::value_of(StagePass& pass, size_t row, size_t kv_head, const float* key) const {
  const size_t head_dim = shape.head_dim;
  const float* value = reads.size() > 2 ? reads[2].at + row * shape.kv_width() + kv_head * head_dim : key;
  if (reads.size() > 2 && !value_norm) return value;
  float* own = pass.scratch() + round_up(head_dim, kPanel);  // what is before it, transposed keys pass through
  if (value_norm)
    pass.k().norm(value_norm->kind, value, value_norm->weight, value_norm->bias, value_norm->eps, head_dim, own);
  else
    std::copy_n(value, head_dim, own);
  return own;
}

// Of one key head and its query heads.
void AppendOperation::heads(StagePass& pass, size_t row, size_t kv_head) const {
  const size_t position = pass.position(row), head_dim = shape.head_dim;
  float* q = (gated ? leaves[0] : reads[0]).at + row * shape.q_width() + kv_head * shape.group() * head_dim;
  for (size_t g = 0; g < shape.group(); ++g) {
    const size_t head = kv_head * shape.group() + g;
    if (gated) std::copy_n(reads[0].at + (row * shape.heads + head) * 2 * head_dim, head_dim, q + g * head_dim);
    prepare(pass, q + g * head_dim, q_norm, position);
  }
  if (!appends()) return;
  float* key = reads[1].at + row * shape.kv_width() + kv_head * head_dim;
  const float* value = value_of(pass, row, kv_head, key);
  prepare(pass, key, k_norm, position);
  write(pass, row, kv_head, key, value);
  keep(pass, caches.kept_keys, row, kv_head, key);
  keep(pass, caches.kept_values, row, kv_head, value);
}

void AppendOperation::write(StagePass& pass, size_t row, size_t kv_head, const float* key, const float* value) const {
  const Ragged* ragged = pass.io().ragged;
  const size_t cached = ragged != nullptr ? ragged->cached[row] : pass.position(row) % shape.capacity;
  if (cached == kNowhere) return;
  const bool passing = cached >= shape.capacity;
  const size_t at = (passing ? cached - shape.capacity : cached) * row_size(shape.format, shape.head_dim);
  const size_t sequence = pass.sequence(row);
  const HeadCache& keys = (passing ? caches.passing_keys : caches.keys)[kv_head];
  const HeadCache& values = (passing ? caches.passing_values : caches.values)[kv_head];
  if (transposed)
    write_transposed(pass, keys, row, key);
  else
    pass.k().write_row(shape.format, key, shape.head_dim, keys.data + sequence * keys.sequence + at);
  pass.k().write_row(shape.format, value, shape.head_dim, values.data + sequence * values.sequence + at);
}

void AppendOperation::keep(StagePass& pass, const KeptHeads& kept, size_t row, size_t kv_head,
                           const float* values) const {
  if (kept.empty() || kept[kv_head].data == nullptr) return;
  const KeptHead& head = kept[kv_head];
  char* to = head.data + pass.sequence(row) * head.sequence + pass.position(row) * head.token;
  head.groups ? pass.k().compress_row(values, shape.head_dim, to)
              : pass.k().write_row(shape.format, values, shape.head_dim, to);
}

void AppendOperation::write_transposed(StagePass& pass, const HeadCache& keys, size_t row, const float* key) const {
  const size_t width = size_of(shape.format), column = shape.capacity * width;
  char* to = keys.data + pass.sequence(row) * keys.sequence + pass.position(row) * width;
  const char* from = reinterpret_cast<const char*>(pass.scratch());
  pass.k().narrow(shape.format, key, shape.head_dim, pass.scratch());
  for (size_t d = 0; d < shape.head_dim; ++d) memcpy(to + d * column, from + d * width, width);
}

}  // namespace helm
