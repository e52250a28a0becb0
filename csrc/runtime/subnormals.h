// Subnormal numbers count as zero for a thread: arithmetic on them takes a processor a hundred times longer, and the
// weights of a saturated softmax are full of them.
#pragma once
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#include <cstdint>

namespace helm {

// For the calling thread, from now on. Elsewhere than on x86-64 and arm64 nothing changes.
inline void flush_subnormals() {
#if defined(__x86_64__)
  constexpr unsigned kFlushResults = 0x8000, kZeroOperands = 0x0040;
  _mm_setcsr(_mm_getcsr() | kFlushResults | kZeroOperands);
#elif defined(__aarch64__)
  constexpr uint64_t kFlush = uint64_t{1} << 24;
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  __asm__ volatile("msr fpcr, %0" : : "r"(control | kFlush));
#endif
}

}  // namespace helm
