#include "kernels/simd/ahead.h"

#include "kernels/cpu_features.h"

namespace helm {
namespace {

size_t of_this_processor() {
  constexpr size_t kPage = 4096;
#if defined(__x86_64__)
  // Cores with AVX-512 from Redwood Cove on have AMX-FP16 and twice the instruction cache of those before: either tells
  // them, as virtual machines may hide one. Smaller cores, which have as much, lack AVX-512, and so do processors that
  // mix both.
  constexpr size_t kOfRedwoodCove = 64 << 10;
  const CpuFeatures& features = cpu_features();
  if (features.amx_fp16 || (features.avx512 && instruction_cache_bytes() >= kOfRedwoodCove)) return kPage / 2;
#endif
  return kPage;
}

}  // namespace

const size_t kAhead = of_this_processor();

}  // namespace helm
