// Pinning threads to processors.
#pragma once
#include <pthread.h>
#include <sched.h>

namespace helm {

// Whether `thread` now runs on `cpu` only.
inline bool pin(pthread_t thread, int cpu) {
  if (cpu < 0 || cpu >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return pthread_setaffinity_np(thread, sizeof(set), &set) == 0;
}

// The CPU that the calling thread was made for, -1 for none.
inline int& own_cpu() {
  thread_local int cpu = -1;
  return cpu;
}

}  // namespace helm
