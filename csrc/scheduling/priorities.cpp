#include "scheduling/priorities.h"

#include <algorithm>
#include <cstdint>

namespace helm::scheduling {
namespace {

template <typename Visit>
void each_running(const State& state, Visit visit) {
  for (const Id id : state.prompting()) visit(id);
  for (const Id id : state.gpu().members()) visit(id);
  for (const Id id : state.cpu()) visit(id);
}

// Blocks at `home` that are free or that those of worse priority hold.
int64_t at_most(const State& state, Home home, int64_t priority) {
  int64_t blocks = state.free(home);
  each_running(state, [&](Id id) {
    const Sequence& sequence = state.sequence(id);
    if (sequence.home == home && sequence.priority > priority) blocks += state.moved_blocks(id);
  });
  return blocks;
}

}  // namespace

Rank last_running(const State& state) {
  Rank last{INT64_MIN, -1};
  each_running(state, [&](Id id) { last = std::max(last, state.rank(id)); });
  return last;
}

Id in_the_way(const State& state, Homes homes) {
  if (!state.ranked() || state.waiting().empty() || state.running() == 0) return -1;
  const auto [priority, last] = last_running(state);
  if (!state.outranks(priority)) return -1;
  const auto [better, first] = *state.waiting().begin();
  const auto has_room = [&, better = better, first = first](Home home) {
    return state.prompt_blocks(first, state.prompt_left(first, home), home) <= at_most(state, home, better);
  };
  return (homes.gpu && has_room(Home::gpu)) || (homes.cpu && has_room(Home::cpu)) ? last : -1;
}

}  // namespace helm::scheduling
