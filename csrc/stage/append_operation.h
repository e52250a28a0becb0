// AppendOperation: QK norms and rotation, and new keys and values into the cache.
#pragma once
#include "stage/norm_operation.h"

namespace helm {

// Rows of one KV head as a memory keeps them beside its cache, bytes apart; `groups`: in 4-bit groups (cache_rows.h).
struct KeptHead {
  char* data = nullptr;
  size_t sequence = 0, token = 0;
  bool groups = false;
};
using KeptHeads = std::vector<KeptHead>;  // by KV head

// The caches of a block, all of its heads or some of them.
struct BlockCaches {
  HeadCaches keys{};    // of each KV head [capacity][head_dim] per sequence, divided: [head_dim][capacity]; or empty
  HeadCaches values{};  // [capacity][head_dim]; or empty
  HeadCaches passing_keys{}, passing_values{};  // ragged: [passing][head_dim] each, behind the rows of those; or empty
  KeptHeads kept_keys{}, kept_values{};         // where else `append` leaves new rows; or empty
};

// Whether KV heads [begin, end) have a cache.
bool cover(const HeadCaches& caches, size_t begin, size_t end);

// Throws std::invalid_argument for heads or a format that attention cannot have.
void check_shape(const Attention& shape);

// Throws std::invalid_argument for a cache that neither holds all positions nor, as a ring, a window beside the tokens
// that pass at a time.
void check_ring(const StageSpec& spec, const Attention& shape);

// q, k, v -> q; or q, k -> q, where values are keys before their norm and rotation; or q -> q, where another block's
// cache is attended to. Gated queries have their gate behind every head, and are left without.
class AppendOperation final : public Operation {
 public:
  Attention shape{};
  BlockCaches caches;
  bool transposed = false;  // keys: of divided attention
  std::optional<NormWeights> q_norm, k_norm;
  std::optional<NormWeights> value_norm;  // of every head
  bool over_projection = false;           // whether these are of all heads of a row together
  bool gated = false;
  size_t rotary_dim = 0;       // 0: no rotation
  const float* cos = nullptr;  // [context][rotary_dim / 2]
  const float* sin = nullptr;

  void check(const StageSpec& spec) const override;
  bool present() const override {
    return !appends() || (cover(caches.keys, 0, shape.kv_heads) && cover(caches.values, 0, shape.kv_heads));
  }
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec&) const override { return 2 * round_up(shape.head_dim, kPanel); }

 private:
  bool appends() const { return reads.size() > 1; }
  void norm_projections(StagePass& pass) const;
  void heads(StagePass& pass, size_t row, size_t kv_head) const;
  void prepare(StagePass& pass, float* head, const std::optional<NormWeights>& weights, size_t position) const;
  // The value of a head whose key is as it was multiplied.
  const float* value_of(StagePass& pass, size_t row, size_t kv_head, const float* key) const;
  // A new key and value to the row of caches that is theirs.
  void write(StagePass& pass, size_t row, size_t kv_head, const float* key, const float* value) const;
  void write_transposed(StagePass& pass, const HeadCache& keys, size_t row, const float* key) const;
  // A new row to where it is kept beside its cache.
  void keep(StagePass& pass, const KeptHeads& kept, size_t row, size_t kv_head, const float* values) const;
};

}  // namespace helm
