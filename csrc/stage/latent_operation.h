// Attention over latent vectors (MLA), absorbed: what is new is appended to a cache of one row a token, and the
// products that every head has for itself before and after attention, which is AttentionOperation over one KV head.
#pragma once
#include "stage/append_operation.h"

namespace helm {

// q, kv_a -> absorbed: the latent vector is normed, the trailing dimensions of it and of every query head are rotated,
// and the token's row is cached. Of queries, what is not rotated is scaled in place, and what is goes behind the place
// that the product with a head's own matrix fills. `shape`: one KV head of a row's width.
class LatentAppendOperation final : public Operation {
 public:
  Attention shape{};
  BlockCaches caches;      // keys alone
  size_t plain = 0;        // dimensions of a query head that are not rotated
  size_t rotated = 0;      // dimensions that are, behind those; of a row too, behind the latent vector
  float factor = 1;        // multiplies queries
  bool neighbours = true;  // whether dimensions 2i and 2i + 1 turn together, not i and i + rotated / 2
  std::optional<NormWeights> norm;
  const float* cos = nullptr;  // [context][rotated / 2]; null: nothing turns
  const float* sin = nullptr;

  size_t latent() const { return shape.head_dim - rotated; }
  void check(const StageSpec& spec) const override;
  bool present() const override { return norm.has_value() && cover(caches.keys, 0, 1); }
  void run(StagePass& pass) const override;

 private:
  void query(StagePass& pass, size_t row, size_t head) const;
  void key(StagePass& pass, size_t row) const;
  void turn(StagePass& pass, const float* x, size_t position, float* out) const;
  char* cached(StagePass& pass, size_t row) const;
};

// A matrix for each of `groups` equal parts of a value: rows [g * rows, (g + 1) * rows) of it, whole panels, multiply
// the first columns of part g of what is read, and leave the first of part g of what is left. Other columns stay.
class GroupedOperation final : public Operation {
 public:
  std::optional<Matrix> matrix;
  size_t groups = 0;

  void check(const StageSpec& spec) const override;
  bool present() const override { return matrix.has_value(); }
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec& spec) const override;

 private:
  size_t panels() const { return matrix->rows / groups / kPanel; }
  void multiply_panels(StagePass& pass, size_t group, Range panels) const;
};

}  // namespace helm
