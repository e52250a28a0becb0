// Seconds of CLOCK_MONOTONIC: the clock of every stamp, and of Python's time.monotonic() on Linux.
#pragma once
#include <time.h>

namespace helm {

inline double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace helm
