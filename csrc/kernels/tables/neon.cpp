// Kernels for NEON, which every arm64 processor has.
#if defined(__aarch64__)
#include "kernels/simd/neon.h"
//
#include "kernels/isa.h"
#include "kernels/tables/table_impl.h"

const helm::Kernels& helm::neon_kernels() {
  static constexpr Kernels table = table_by_name(neon_mixers);
  return table;
}
#endif
