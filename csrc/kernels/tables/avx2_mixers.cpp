// Kernels of routers and recurrent mixers for AVX2 and FMA; compiled for them, so nothing but the table may leave this
// file.
#if defined(__x86_64__)
#include "kernels/simd/avx2.h"
//
#include "kernels/isa.h"
#include "kernels/tables/mixers_table_impl.h"

const helm::MixerKernels& helm::avx2_mixers() { return kMixers; }
#endif
