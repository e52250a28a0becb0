// Kernels for NEON, which every arm64 processor has.
#if defined(__aarch64__)
#include "simd_neon.h"
//
#include "isa.h"
#include "table_impl.h"

const helm::Kernels& helm::neon_kernels() { return kTable; }
#endif
