// Forward: runs of passes of nothing but decodes on the accelerator, in closed form.
#pragma once
#include <cstdint>
#include <vector>

#include "scheduling/clock.h"
#include "scheduling/cost.h"

namespace helm::scheduling {

// Seconds of the last of the passes, than which no later one takes less.
double last(const Stretch& stretch);

// Seconds of `stretch.terms` passes.
double sum(const Stretch& stretch);

// The same, each times an amount that is `first` in the first pass and grows by `rise` with every one.
double weighted_sum(const Stretch& stretch, double first, double rise);

// Seconds of passes in which `count` requests decode that read `kv` KV tokens in the first and `count` more in every
// further one: up to the first pass that ends at `stop` or later, that one included, but at most `most`. Replaces
// `run`; O(knots of the cost that the contexts cross).
void run_until(const Cost& cost, int64_t count, int64_t kv, int64_t most, const Clock& now, double stop,
               std::vector<Stretch>& run);

}  // namespace helm::scheduling
