#pragma once

// The instruction sets that this x86-64 processor has and whose registers the system keeps for a process, and who made
// it. Read from the processor itself: compilers' own functions for it differ in the names that they know, and some find
// nothing.

#if defined(__x86_64__)

namespace helm {

struct CpuFeatures {
  bool avx2 = false;    // with FMA and F16C
  bool avx512 = false;  // F, BW, DQ and VL, and AVX2
  bool avx_vnni = false;
  bool avx512_vnni = false;
  bool avx512_bf16 = false;
  bool amx_bf16 = false;  // with tiles; a process has to ask for these
};

const CpuFeatures& cpu_features();

// Whether Intel made this processor.
bool is_intel();

}  // namespace helm

#endif
