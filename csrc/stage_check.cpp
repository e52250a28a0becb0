// What a StageSpec must satisfy before anything is computed from it.
#include <stdexcept>

#include "stage.h"

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

void check_block(const StageSpec& s, const BlockSpec& b) {
  const size_t q = s.attention.q_width(), kv = s.attention.kv_width();
  check_matrix("q", b.q, q, s.hidden);
  check_matrix("k", b.k, kv, s.hidden);
  check_matrix("v", b.v, kv, s.hidden);
  check_matrix("o", b.o, s.hidden, q);
  if (b.gate) check_matrix("gate", *b.gate, s.ffn, s.hidden);
  check_matrix("up", b.up, s.ffn, s.hidden);
  check_matrix("down", b.down, s.hidden, s.ffn);
}

}  // namespace

void check(const StageSpec& s) {
  const Attention& a = s.attention;
  expect(a.heads % a.kv_heads == 0, "heads must be a multiple of kv_heads");
  expect(s.rotary_dim % 2 == 0 && s.rotary_dim <= a.head_dim, "rotary_dim must be even and at most head_dim");
  expect(s.rotary_dim == 0 || (s.cos != nullptr && s.sin != nullptr), "rotation needs cos and sin");
  expect(s.positions == nullptr || s.embedding.has_value(), "positions need an embedding");
  expect(s.final_norm.has_value() == s.head.has_value(), "final_norm and head come together");
  expect(s.embedding || s.head || !s.blocks.empty(), "there is nothing to compute");
  expect(s.max_tokens <= a.capacity, "max_tokens exceeds capacity");
  if (s.embedding) check_matrix("embedding", *s.embedding, s.vocab, s.hidden);
  for (const BlockSpec& b : s.blocks) check_block(s, b);
  if (s.head) check_matrix("head", *s.head, s.vocab, s.hidden);
}

}  // namespace helm
