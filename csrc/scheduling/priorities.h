// Priorities: who waits finds room where requests of worse priority have it. They leave before anybody of better
// priority waits for them, as in vLLM's scheduler with its policy "priority" (pull request 5958; its later engine has
// no such step).
//
// Only strictly worse ones leave: equals wait for each other, so nobody can come back at the cost of whom it made room
// for.
#pragma once
#include "scheduling/state.h"

namespace helm::scheduling {

// The last by rank of those that run, which are not none.
Rank last_running(const State& state);

// The last of those that run, if its priority is worse than that of the first that waits, and if all of that kind leave
// enough blocks for the whole prompt in one of `homes`: nobody leaves for less. -1: nobody.
Id in_the_way(const State& state, Homes homes);

// Calls `drive_out` for those in the way until the first that waits may begin.
template <typename MayBegin, typename DriveOut>
void make_way(const State& state, Homes homes, MayBegin may_begin, DriveOut drive_out) {
  for (Id id = in_the_way(state, homes); id >= 0 && !may_begin(); id = in_the_way(state, homes)) drive_out(id);
}

}  // namespace helm::scheduling
