#include "scheduling/admission.h"

#include <algorithm>

#include "scheduling/priorities.h"

namespace helm::scheduling {
namespace {

// Blocks that the prompts begun on the accelerator still need, all of them or those of the next pass.
int64_t begun_blocks(const State& state, int64_t most) {
  int64_t blocks = 0;
  for (const Id id : state.prompting()) {
    if (state.sequence(id).home != Home::gpu) continue;
    blocks += state.prompt_blocks(id, std::min(state.prompt_left(id, Home::gpu), most), Home::gpu);
  }
  return blocks;
}

Id last(const State& state) {
  const auto& members = state.gpu().members();
  return *std::max_element(members.begin(), members.end(),
                           [&](Id one, Id other) { return state.rank(one) < state.rank(other); });
}

// The one that waits longest at the host for the accelerator, or -1. Work under way there is interrupted only where all
// are part of it, and then who has fewest layers behind them: a cohort takes as many passes as layers, and the
// accelerator would lack whoever ends meanwhile.
Id first(const State& state) {
  const auto& queue = state.cpu();
  const auto found = std::find_if(queue.begin(), queue.end(), [&](Id id) { return state.sequence(id).cohort == 0; });
  if (found != queue.end()) return *found;
  const auto layers = [&](Id id) { return state.cohorts()[state.sequence(id).cohort].layers; };
  const auto least = std::min_element(queue.begin(), queue.end(), [&](Id a, Id b) { return layers(a) < layers(b); });
  return least == queue.end() ? -1 : *least;
}

// Blocks of the host's cache that prompts leave to those who must make room on the accelerator, and to the tokens of
// those who are there (NEO's code: as many as the accelerator has).
int64_t reserve(const State& state) {
  if (state.cpu().empty()) return 0;
  return std::min(state.blocks(Home::gpu).capacity(), state.blocks(Home::cpu).capacity() / 2);
}

}  // namespace

void Admission::price(const State& state, const Cost& believed) {
  const auto full = static_cast<double>(state.limits().batch_tokens);
  const double moved =
      (believed.swap_out(full) + believed.swap_in(full)) / believed.stages;  // each over a link of its own
  near_ = !homes_.gpu || moved <= believed.linear(full);
}

bool Admission::may_move(const State& state, Id id) const {
  const Sequence& sequence = state.sequence(id);
  const bool waits = sequence.status == Status::waiting;
  const int64_t most = (waits ? sequence.prompt - 1 : state.cached(id)) + sequence.output - state.produced(id);
  return near_ || state.limits().blocks(most) > state.blocks(Home::gpu).capacity();
}

// Moving them to the host would help nobody: who finds room there begins there.
void Admission::move(State& state) {
  make_way(state, homes_, [&] { return may_begin(state); }, [&](Id id) { state.preempt(id); });
  if (!homes_.gpu) return;
  make_room(state);
  if (state.decision().out.empty() && state.decision().dropped.empty()) bring_back(state);
}

// Whether the first that waits finds place and blocks after those that go before it, or no tokens anyhow: a whole
// prompt that others leave too few waits for a pass of its own, whoever leaves.
bool Admission::may_begin(const State& state) {
  prompts_.clear();
  Room left = room(state);
  for (const Id id : state.prompting())
    if (!state.outranks(state.sequence(id).priority) && !begun(state, id, left)) break;
  if (left.tokens <= 0) return true;
  return left.places > 0 && home_for(state, state.waiting().begin()->second, left) != Home::none;
}

void Admission::make_room(State& state) const {
  const int64_t begun = begun_blocks(state, state.limits().budget());
  while (state.gpu().count() > 0 && state.gpu().growth(1) + begun > state.free(Home::gpu)) {
    const Id victim = last(state);
    if (may_move(state, victim) && state.moved_blocks(victim) <= state.free(Home::cpu)) {
      state.swap_out(victim, false);
    } else {
      state.preempt(victim);
    }
  }
}

void Admission::bring_back(State& state) const {
  const int64_t all = begun_blocks(state, state.limits().gpu_tokens), capacity = state.blocks(Home::gpu).capacity();
  for (Id id = first(state); id >= 0; id = first(state)) {
    if (state.outranks(state.sequence(id).priority)) return;
    // Without spare blocks those that come back would soon have to leave again.
    const int64_t spare = state.gpu().count() > 0 ? capacity / 20 : 0;
    const int64_t wanted = state.limits().blocks(state.cached(id) + 1) + state.gpu().growth(1) + all;
    if (wanted + spare > state.free(Home::gpu)) return;
    state.swap_in(id);
  }
}

Admission::Room Admission::room(const State& state) const {
  const Limits& limits = state.limits();
  return {limits.budget() - state.gpu().count(), limits.sequences - state.running(),
          homes_.gpu ? state.free(Home::gpu) - state.gpu().growth(1) : 0, homes_.cpu ? state.free(Home::cpu) : 0,
          reserve(state)};
}

const std::vector<Candidate>& Admission::prompts(const State& state) {
  prompts_.clear();
  Room left = room(state);
  auto next = state.waiting().begin();
  bool more = true;
  const auto begin_before = [&](auto comes_first) {
    for (; more && next != state.waiting().end() && comes_first(next->first); ++next)
      more = begin(state, next->second, left);
  };
  for (const Id id : state.prompting()) {
    begin_before([&](int64_t priority) { return priority < state.sequence(id).priority; });
    if (!begun(state, id, left)) break;
  }
  begin_before([](int64_t) { return true; });
  return prompts_;
}

bool Admission::begun(const State& state, Id id, Room& room) {
  const Home home = state.sequence(id).home;
  const int64_t count = std::min(state.prompt_part(id, home), room.tokens);
  if (count <= 0 || state.prompt_blocks(id, count, home) > (home == Home::gpu ? room.gpu : room.cpu)) return false;
  add(state, id, count, home, false, room);
  return true;
}

bool Admission::begin(const State& state, Id id, Room& room) {
  if (room.places <= 0 || room.tokens <= 0) return false;
  const Home home = home_for(state, id, room);
  if (home == Home::none) return false;
  const int64_t left = state.prompt_part(id, home), count = std::min(left, room.tokens);
  const bool cut = count < left, pieces = state.limits().chunk > 0 || prompts_.empty();
  if (cut && !pieces) return false;
  --room.places;
  add(state, id, count, home, home == Home::cpu && homes_.gpu, room);
  return !cut;
}

// The accelerator while it has room for the whole prompt and nobody before it went to the host. Beside requests that
// wait there, the host must have room for it, too: whoever comes must be able to make way (NEO's code).
Home Admission::home_for(const State& state, Id id, const Room& room) const {
  const bool before = !prompts_.empty() && prompts_.back().optional;
  const auto blocks = [&](Home home) { return state.prompt_blocks(id, state.prompt_left(id, home), home); };
  const bool host = homes_.cpu && may_move(state, id) && blocks(Home::cpu) <= room.cpu - room.kept;
  if (homes_.gpu && !before && blocks(Home::gpu) <= room.gpu && (host || !near_ || state.cpu().empty()))
    return Home::gpu;
  return host ? Home::cpu : Home::none;
}

void Admission::add(const State& state, Id id, int64_t count, Home home, bool optional, Room& room) {
  const Sequence& sequence = state.sequence(id);
  const int64_t past = sequence.prompt - state.prompt_left(id, home);
  const bool ends = past + count == sequence.prompt;
  Candidate candidate{{id, count, past, home}, {}, 1.0, optional};
  candidate.work.prompt(count, past, ends);
  if (home == Home::cpu) candidate.work.swap_out += count, candidate.work.swap_in += past;
  if (!ends) candidate.advance = static_cast<double>(count) / static_cast<double>(sequence.prompt);
  room.tokens -= count;
  // With room for the rest of it, too.
  (home == Home::gpu ? room.gpu : room.cpu) -= state.prompt_blocks(id, state.prompt_left(id, home), home);
  prompts_.push_back(candidate);
}

}  // namespace helm::scheduling
