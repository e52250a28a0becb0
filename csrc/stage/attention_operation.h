// Attention of a block: in one operation, or divided into scores, softmax and weighted values.
#pragma once
#include "stage/append_operation.h"

namespace helm {

// q -> attended; or q, gated queries -> attended, multiplied by the sigmoid of what is behind each of their heads.
class AttentionOperation final : public Operation {
 public:
  Attention shape{};
  BlockCaches caches;

  void check(const StageSpec& spec) const override;
  bool present() const override {
    return cover(caches.keys, 0, shape.kv_heads) && cover(caches.values, 0, shape.kv_heads);
  }
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec&) const override { return attention_scratch(shape); }
  const Attention* attention() const override { return &shape; }
  bool contiguous() const override { return true; }

 private:
  void each_sequence(StagePass& pass) const;
  void gate(StagePass& pass) const;
  // Where positions [begin, end) are, one span or two; returns how many.
  size_t ring_spans(size_t begin, size_t end, KvSpan* spans) const;
};

// q -> scores -> attended: `part` says which.
class DividedOperation final : public Operation {
 public:
  enum class Part { scores, softmax, weighted };

  Part part = Part::scores;
  Attention shape{};
  BlockCaches caches;
  Range heads{};  // the KV heads that it computes

  void check(const StageSpec& spec) const override;
  bool present() const override;
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec&) const override { return attention_scratch(shape); }
  const Attention* attention() const override { return &shape; }
};

}  // namespace helm
