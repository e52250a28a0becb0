// What a StageSpec must satisfy before anything is computed from it.
#include <stdexcept>

#include "stage/stage.h"

namespace helm {
namespace {

[[noreturn]] void refuse(const std::string& what) { throw std::invalid_argument("stage: " + what); }

void expect(bool condition, const std::string& what) {
  if (!condition) refuse(what);
}

void check_matrix(const std::string& name, const Matrix& m, size_t rows, size_t columns) {
  if (m.rows != rows || m.columns != columns)
    refuse(name + " is (" + std::to_string(m.rows) + ", " + std::to_string(m.columns) + "), expected (" +
           std::to_string(rows) + ", " + std::to_string(columns) + ")");
}

// A part of an operation of `rows` rows, if it is there: it begins with a whole panel.
void check_part(const std::string& name, const std::optional<Matrix>& m, size_t rows, size_t columns) {
  if (!m) return;
  if (m->columns != columns || m->first > rows || m->rows > rows - m->first)
    refuse(name + " is rows [" + std::to_string(m->first) + ", " + std::to_string(m->first + m->rows) + ") of " +
           std::to_string(m->columns) + " columns, expected a part of (" + std::to_string(rows) + ", " +
           std::to_string(columns) + ")");
  expect(m->first % kPanel == 0, name + " begins with row " + std::to_string(m->first) + ", not a multiple of 16");
}

void check_heads(const StageSpec& s, const std::string& name, const Range& heads) {
  expect(heads.begin < heads.end && heads.end <= s.attention.kv_heads,
         name + " [" + std::to_string(heads.begin) + ", " + std::to_string(heads.end) + ") are not among " +
             std::to_string(s.attention.kv_heads) + " KV heads");
}

void check_block(const StageSpec& s, const BlockSpec& b) {
  const size_t q = s.attention.q_width(), kv = s.attention.kv_width();
  check_part("q", b.q, q, s.hidden);
  check_part("k", b.k, kv, s.hidden);
  check_part("v", b.v, kv, s.hidden);
  check_part("o", b.o, s.hidden, q);
  check_part("gate", b.gate, s.ffn, s.hidden);
  check_part("up", b.up, s.ffn, s.hidden);
  check_part("down", b.down, s.hidden, s.ffn);
  expect(s.gated || !b.gate, "a block has a gate, but the stage is not gated");
  check_heads(s, "scores_heads", b.scores_heads);
  check_heads(s, "wv_heads", b.weighted_heads);
}

}  // namespace

void check(const StageSpec& s) {
  const Attention& a = s.attention;
  expect(a.heads % a.kv_heads == 0, "heads must be a multiple of kv_heads");
  expect(s.rotary_dim % 2 == 0 && s.rotary_dim <= a.head_dim, "rotary_dim must be even and at most head_dim");
  expect(s.rotary_dim == 0 || (s.cos != nullptr && s.sin != nullptr), "rotation needs cos and sin");
  expect(s.positions == nullptr || s.embedding.has_value(), "positions need an embedding");
  expect(s.embedding || s.final_norm || s.head || !s.blocks.empty(), "there is nothing to compute");
  const bool ragged = s.sequences > 0;
  expect(ragged || s.max_tokens <= a.capacity, "max_tokens exceeds capacity");
  expect(!ragged || (s.batch == 1 && !s.paged && !s.divided),
         "rows of several sequences have batch 1, attention in one operation and caches at home");
  expect(divides(a.format, a.head_dim),
         "kv_format q8_0 needs a head_dim that is a multiple of 32, not " + std::to_string(a.head_dim));
  expect(!s.divided || !quantised(a.format), "divided attention reads f32, f16 and bf16, not q8_0");
  expect(!s.paged || !s.divided, "paged attention cannot be divided");
  expect(s.paged || ragged || s.context == a.capacity, "context (" + std::to_string(s.context) +
                                                           ") differs from capacity (" + std::to_string(a.capacity) +
                                                           "), and the stage is not paged");
  if (s.embedding) check_matrix("embedding", *s.embedding, s.looked_up ? s.batch * s.max_tokens : s.vocab, s.hidden);
  for (const BlockSpec& b : s.blocks) check_block(s, b);
  if (s.head) check_matrix("head", *s.head, s.vocab, s.hidden);
}

}  // namespace helm
