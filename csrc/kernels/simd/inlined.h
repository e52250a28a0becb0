// Functions that have to be compiled into their callers: registers do not pass through calls.
#pragma once

#define HELM_INLINE inline __attribute__((always_inline))
#define HELM_LAMBDA __attribute__((always_inline))
