#include "scheduling/hybrid.h"

#include <algorithm>

namespace helm::scheduling {
namespace {

// Of the worst priority on the host who came there last.
Id last(const State& state) {
  const auto& queue = state.cpu();
  const auto better = [&](Id one, Id other) { return state.sequence(one).priority < state.sequence(other).priority; };
  return *std::max_element(queue.rbegin(), queue.rend(), better);
}

}  // namespace

// Something goes on while there is anything to do: with nothing on the accelerator, the host is waited for; without a
// free block for any token there, the last of them gives up its cache.
void Hybrid::decide(State& state, const Cost& believed) {
  admission_.price(state, believed);
  admission_.move(state);
  for (;; state.preempt(last(state))) {
    considered_.clear();
    const auto& prompts = admission_.prompts(state);
    const Schedules schedules(state, believed, prompts, weighing_);
    const Schedule& chosen = anything(schedules, choose(state, believed, schedules));
    const auto made = std::find(considered_.begin(), considered_.end(), &chosen);
    if (made != considered_.end()) std::iter_swap(considered_.begin(), made);
    if (!chosen.idle() || state.cpu().empty()) return Schedules::make(state, believed, prompts, chosen);
  }
}

const Schedule& Hybrid::anything(const Schedules& schedules, const Schedule& chosen) {
  if (!chosen.idle()) return chosen;
  schedules.balanced(rest_);
  return rest_;
}

}  // namespace helm::scheduling
