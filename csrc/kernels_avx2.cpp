// Kernels for AVX2, FMA and F16C; compiled for them, so nothing but the table may leave this file.
#if defined(__x86_64__)
#include "simd_avx2.h"
//
#include "isa.h"
#include "table_impl.h"

const helm::Kernels& helm::avx2_kernels() { return kTable; }
#endif
