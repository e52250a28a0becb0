#include "kernels/simd/ahead.h"

#include "kernels/cpu_features.h"

namespace helm {
namespace {

size_t of_this_processor() {
  constexpr size_t kPage = 4096;
#if defined(__x86_64__)
  constexpr size_t kOfRedwoodCove = 64 << 10;  // bytes of its instruction cache: twice those of cores before it
  if (instruction_cache_bytes() >= kOfRedwoodCove) return kPage / 2;
#endif
  return kPage;
}

}  // namespace

const size_t kAhead = of_this_processor();

}  // namespace helm
