// Kernels of routers and recurrent mixers for NEON, which every arm64 processor has.
#if defined(__aarch64__)
#include "kernels/simd/neon.h"
//
#include "kernels/isa.h"
#include "kernels/tables/mixers_table_impl.h"

const helm::MixerKernels& helm::neon_mixers() { return kMixers; }
#endif
