// Requests: the columns of schemas/requests.py, in order of arrival; the memory is the caller's.
#pragma once
#include <cstdint>

#include "scheduling/sequences.h"

namespace helm::scheduling {

struct Requests {
  int64_t count = 0;
  const double* arrival = nullptr;  // seconds
  const int64_t* prompt = nullptr;
  const int64_t* output = nullptr;
  const int64_t* priority = nullptr;    // smaller first
  const double* cancel = nullptr;       // seconds; infinity: never
  const int64_t* hash_start = nullptr;  // count + 1 of them
  const int64_t* hashes = nullptr;
  int64_t hash_block = 0;  // tokens of a block; 0: nothing is known of prefixes
  // Of a closed loop (closed_loop.h), where `users` is not 0: nobody knows yet when requests arrive.
  int64_t users = 0;
  const double* starts = nullptr;  // users of them, seconds: when each sends its first request
  const double* think = nullptr;   // seconds from the end of a request until its user sends the next

  Hashes hashes_of(int64_t request) const {
    return {hashes + hash_start[request], hash_start[request + 1] - hash_start[request]};
  }
  bool one_priority() const {
    for (int64_t i = 1; i < count; ++i)
      if (priority[i] != priority[0]) return false;
    return true;
  }
};

}  // namespace helm::scheduling
