// Functions that have to be compiled into their callers: registers do not pass through calls, and GCC 12 leaves out
// calls of functions that do nothing but prefetch.
#pragma once

#define HELM_INLINE inline __attribute__((always_inline))
#define HELM_LAMBDA __attribute__((always_inline))
