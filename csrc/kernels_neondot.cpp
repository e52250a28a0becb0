// Products of quantised weights with NEON's dot products; all else is NEON's. Compiled for them, so nothing but the
// table may leave this file.
#if defined(__aarch64__)
#include "simd_neon.h"
//
#include "isa.h"
#include "code_tiles_impl.h"

namespace {

helm::Kernels with_words(helm::Kernels table) {
  table.name = "neondot";
  table.linear_words = helm::linear_words;
  table.byte_most = helm::Simd::byte_most;
  table.pack_words = helm::pack_words;
  table.linear_bytes = helm::linear_bytes;
  table.pack_bytes = helm::pack_bytes;
  return table;
}

}  // namespace

const helm::Kernels& helm::neondot_kernels() {
  static const Kernels table = with_words(neon_kernels());
  return table;
}
#endif
