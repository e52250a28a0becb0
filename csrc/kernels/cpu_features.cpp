#include "kernels/cpu_features.h"

#if defined(__x86_64__)

#include <cpuid.h>

#include <cstddef>
#include <cstdint>

namespace helm {
namespace {

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers leaf(uint32_t number, uint32_t part) {
  Registers found;
  if (!__get_cpuid_count(number, part, &found.a, &found.b, &found.c, &found.d)) return {};
  return found;
}

bool bit(uint32_t word, int place) { return word >> place & 1; }

// Which registers the system saves when it changes threads (XCR0).
uint64_t kept_registers() {
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

bool is_intel() {
  constexpr uint32_t kGenu = 0x756e6547, kIneI = 0x49656e69, kNtel = 0x6c65746e;  // "GenuineIntel", in b, d and c
  const Registers maker = leaf(0, 0);
  return maker.b == kGenu && maker.d == kIneI && maker.c == kNtel;
}

CpuFeatures read_features() {
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;
  CpuFeatures found;
  const Registers basic = leaf(1, 0);
  if (!bit(basic.c, 27)) return found;  // no xgetbv, so no AVX either
  const uint64_t kept = kept_registers();
  const Registers more = leaf(7, 0);
  const Registers most = more.a >= 1 ? leaf(7, 1) : Registers{};
  const bool ymm = (kept & kYmm) == kYmm, zmm = (kept & kZmm) == kZmm, tiles = (kept & kTiles) == kTiles;
  found.avx2 = ymm && bit(basic.c, 28) && bit(basic.c, 12) && bit(basic.c, 29) && bit(more.b, 5);
  found.avx512 = found.avx2 && zmm && bit(more.b, 16) && bit(more.b, 17) && bit(more.b, 30) && bit(more.b, 31);
  found.avx_vnni = found.avx2 && bit(most.a, 4);
  found.avx512_vnni = found.avx512 && bit(more.c, 11);
  found.avx512_bf16 = found.avx512 && bit(most.a, 5);
  found.amx_bf16 = tiles && bit(more.d, 24) && bit(more.d, 22);
  found.amx_fp16 = found.amx_bf16 && bit(most.a, 21);
  return found;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = read_features();
  return features;
}

size_t instruction_cache_bytes() {
  constexpr uint32_t kCaches = 4, kMost = 16, kNone = 0, kInstructions = 2;  // the leaf, its length, kinds in it
  if (!is_intel()) return 0;
  for (uint32_t place = 0; place < kMost; ++place) {
    const Registers cache = leaf(kCaches, place);
    const uint32_t kind = cache.a & 0x1f, level = cache.a >> 5 & 0x7;
    if (kind == kNone) return 0;
    if (kind == kInstructions && level == 1) {
      const size_t ways = (cache.b >> 22) + 1, parts = (cache.b >> 12 & 0x3ff) + 1, line = (cache.b & 0xfff) + 1;
      return ways * parts * line * (size_t{cache.c} + 1);
    }
  }
  return 0;
}

}  // namespace helm

#endif
