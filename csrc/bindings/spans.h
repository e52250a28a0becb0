// Spans of caches, as Python gives them.
#pragma once
#include "kernels/attention/attention.h"
#include "bindings/bindings.h"

namespace helm {

// Spans with what they point to, which this keeps alive.
class BoundSpans {
 public:
  // Throws ValueError for bytes that are not there.
  BoundSpans(const Attention& shape, size_t batch, const std::vector<SpanArgs>& spans);
  BoundSpans(const BoundSpans&) = delete;

  KvSpans spans() const { return {spans_.data(), spans_.size()}; }

 private:
  struct Strides {
    size_t sequence, head, bytes;  // bytes: up to the end of the last head of the last sequence
  };

  const HeadCache* heads(const char* what, const Buffer* buffer, long long offset, const Strides& strides);

  std::vector<Buffer> buffers_;
  std::vector<HeadCaches> heads_;
  std::vector<KvSpan> spans_;
};

}  // namespace helm
