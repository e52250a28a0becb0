// Kernels of routers and recurrent mixers for AVX-512 F, BW, DQ and VL; compiled for them, so nothing but the table may
// leave this file.
#if defined(__x86_64__)
#include "kernels/simd/avx512.h"
//
#include "kernels/isa.h"
#include "kernels/tables/mixers_table_impl.h"

const helm::MixerKernels& helm::avx512_mixers() { return kMixers; }
#endif
