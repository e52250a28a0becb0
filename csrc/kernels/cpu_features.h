#pragma once

// The instruction sets that this x86-64 processor has and whose registers the system keeps for a process, and a size by
// which its generation is told. Read from the processor itself: compilers' own functions for it differ in the names
// that they know, and some find nothing.

#if defined(__x86_64__)

#include <cstddef>

namespace helm {

struct CpuFeatures {
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // F, BW, DQ and VL, and AVX2
  bool avx_vnni = false;
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool amx_bf16 = false;  // with tiles; a process has to ask for these
  bool amx_fp16 = false;  // likewise
};

const CpuFeatures& cpu_features();

// Bytes of a core's first-level cache for instructions, as Intel's processors say; 0 on those of others.
size_t instruction_cache_bytes();

}  // namespace helm

#endif
