// Schedule: a pass that could be made next, priced.
#pragma once
#include <array>
#include <cstddef>
#include <vector>

#include "scheduling/decision.h"

namespace helm::scheduling {

struct Schedule {
  Kind kind = Kind::gpu_only;
  size_t prompts = 0;                  // so many of the prompts that may join, in order
  std::array<std::vector<Id>, 2> cpu;  // decodes with attention on the host, by half; deferred: a new cohort in 0
  Load load;
  double advance = 0;                      // x: tokens that requests come closer to, counted by request (E-NEO-01)
  double seconds = 0;                      // T
  std::array<double, 2> hiding{}, host{};  // pipelined: seconds of one layer by half, see Halves

  double rate() const { return seconds > 0 ? advance / seconds : 0; }
  bool idle() const { return advance == 0; }
  bool uses_host() const { return !cpu[0].empty() || !cpu[1].empty(); }
};

}  // namespace helm::scheduling
