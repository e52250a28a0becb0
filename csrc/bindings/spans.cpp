#include "bindings/spans.h"

#include "formats/shape.h"

namespace helm {

BoundSpans::BoundSpans(const Attention& shape, size_t batch, const std::vector<SpanArgs>& spans) {
  const size_t row = row_size(shape.format, shape.head_dim);
  for (const auto& [keys, key, values, value, sequence, head, position, count] : spans) {
    const size_t from = count_of("position", position, 0), rows = count_of("count", count, 0);
    Strides strides{count_of("sequence_stride", sequence, 0), count_of("head_stride", head, 0), product({rows, row})};
    if (rows > 0) strides.bytes += product({batch - 1, strides.sequence}) + product({shape.kv_heads - 1, strides.head});
    heads_.emplace_back(shape.kv_heads);
    const HeadCache* k = heads("keys", keys, key, strides);
    heads_.emplace_back(shape.kv_heads);
    const HeadCache* v = heads("values", values, value, strides);
    spans_.push_back({k, v, from, rows});
  }
}

// Fills the last of heads_, whose elements stay where they are.
const HeadCache* BoundSpans::heads(const char* what, const Buffer* buffer, long long offset, const Strides& strides) {
  const size_t from = count_of("offset", offset, 0);
  expect_range(what, *buffer, from, strides.bytes);
  buffers_.push_back(*buffer);
  for (size_t h = 0; h < heads_.back().size(); ++h)
    heads_.back()[h] = {buffer->data + from + h * strides.head, strides.sequence};
  return heads_.back().data();
}

}  // namespace helm
