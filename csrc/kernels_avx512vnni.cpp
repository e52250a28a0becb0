// Kernels for AVX-512 with VNNI; compiled for them, so nothing but the table may leave this file.
#if defined(__x86_64__)
#include "simd_avx512.h"
//
#include "isa.h"
#include "table_impl.h"

const helm::Kernels& helm::avx512vnni_kernels() { return kTable; }
#endif
