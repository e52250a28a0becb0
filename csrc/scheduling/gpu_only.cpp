// gpu-only: continuous batching with chunked prefill, as vLLM schedules. Decodes go first, then prompts that have
// begun, then waiting ones in order, while tokens, places and blocks last; who finds no block drives out the last. Who
// waits with a better priority goes before prompts that have begun, and drives out whom it has to (priorities.h).
#include <algorithm>
#include <optional>
#include <vector>

#include "scheduling/policies.h"
#include "scheduling/priorities.h"

namespace helm::scheduling {
namespace {

class GpuOnly final : public Policy {
 public:
  explicit GpuOnly(const Options& options) : swaps_(options.text("preemption") == "swap") {}

  Homes homes() const override { return {true, false}; }
  bool learns() const override { return false; }

  // Whoever could not go on or begin now finds no more blocks, places or tokens until a decode ends.
  bool steady(const State& state) const override { return state.settled(); }

  void decide(State& state, const Cost&) override {
    make_way(state, homes(), [&] { return may_begin(state); }, [&](Id id) { drive_out(state, id); });
    bool crowded = make_room(state);
    crowded |= let_prompt_go_on(state);
    if (!crowded) bring_back(state);
    if (state.gpu().count() > 0) state.decode_on_gpu();
    take_prompts(state, !crowded);
  }

 private:
  // Tokens that this pass still has room for, with everybody decoding who may.
  static int64_t room(const State& state) {
    return state.limits().budget() - std::max(state.load().half[0].tokens, state.gpu().count());
  }

  void drive_out(State& state, Id id) const {
    const bool decodes = state.sequence(id).status == Status::on_gpu;
    if (swaps_ && decodes && state.may_leave(id)) {
      state.swap_out(id, true);
    } else {
      state.preempt(id);
    }
  }

  bool make_room(State& state) const {
    bool crowded = false;
    for (; state.gpu().growth(1) > state.free(Home::gpu); crowded = true) drive_out(state, last_running(state).second);
    return crowded;
  }

  // The first prompt that has begun drives out whoever comes after it, unless somebody better waits for what it would
  // take.
  bool let_prompt_go_on(State& state) const {
    bool crowded = false;
    for (; !state.prompting().empty(); crowded = true) {
      const Id first = state.prompting().front();
      if (state.outranks(state.sequence(first).priority)) break;
      const int64_t count = std::min(room(state), state.prompt_part(first, Home::gpu));
      if (count <= 0) break;
      const int64_t wanted = state.gpu().growth(1) + state.prompt_blocks(first, count, Home::gpu);
      const Rank victim = last_running(state);
      if (wanted <= state.free(Home::gpu) || victim <= state.rank(first)) break;
      drive_out(state, victim.second);
    }
    return crowded;
  }

  void bring_back(State& state) const {
    while (!state.swapped().empty() && state.running() < state.limits().sequences && room(state) > 0) {
      const auto [priority, id] = *state.swapped().begin();
      if (state.outranks(priority)) return;
      const int64_t wanted = state.gpu().growth(1) + state.limits().blocks(state.cached(id) + 1);
      if (wanted > state.free(Home::gpu)) return;
      state.swap_in(id);
    }
  }

  // Whether the first that waits finds place and blocks after those that go before it, or no tokens anyhow.
  static bool may_begin(const State& state) {
    const auto [priority, first] = *state.waiting().begin();
    int64_t tokens = room(state), blocks = state.free(Home::gpu) - state.gpu().growth(1);
    const auto take = [&](Id id) {
      const int64_t count = std::min(tokens, state.prompt_part(id, Home::gpu));
      if (count > 0) tokens -= count, blocks -= state.prompt_blocks(id, count, Home::gpu);
    };
    for (const Id id : state.prompting())
      if (!state.outranks(state.sequence(id).priority)) take(id);
    if (tokens <= 0) return true;
    take(first);
    return blocks >= 0 && state.running() < state.limits().sequences;
  }

  // By rank, until one that has begun finds no tokens or blocks; who was swapped out comes back before others begin.
  static void take_prompts(State& state, bool admits) {
    const std::vector<Id> begun = state.prompting();
    std::optional<int64_t> before;  // the best priority of those who come first
    if (!state.swapped().empty()) before = state.swapped().begin()->first;
    for (const Id id : begun) {
      const int64_t priority = state.sequence(id).priority;
      if (admits) admit(state, std::min(priority, before.value_or(priority)));
      if (!go_on(state, id)) return;
    }
    if (admits) admit(state, before);
  }

  static bool go_on(State& state, Id id) {
    const int64_t count = std::min(room(state), state.prompt_part(id, Home::gpu));
    if (count <= 0 || state.prompt_blocks(id, count, Home::gpu) > state.free(Home::gpu)) return false;
    state.prompt(id, count, Home::gpu);
    return true;
  }

  // Those that wait, of better priority than `before` if there is any; nobody comes back to where it has made way.
  static void admit(State& state, std::optional<int64_t> before) {
    const auto& dropped = state.decision().dropped;
    while (!state.waiting().empty() && state.running() < state.limits().sequences && room(state) > 0) {
      const auto [priority, id] = *state.waiting().begin();
      if (before && priority >= *before) return;
      if (std::find(dropped.begin(), dropped.end(), id) != dropped.end()) return;
      const int64_t left = state.prompt_part(id, Home::gpu), count = std::min(room(state), left);
      // A whole prompt waits for a pass of its own if it must be cut.
      const bool alone = state.decision().prompts.empty();
      if (state.limits().chunk == 0 && count < left && !alone) return;
      if (state.prompt_blocks(id, count, Home::gpu) > state.free(Home::gpu)) return;
      state.prompt(id, count, Home::gpu);
    }
  }

  bool swaps_;
};

}  // namespace

std::unique_ptr<Policy> make_gpu_only(const Options& options) { return std::make_unique<GpuOnly>(options); }

}  // namespace helm::scheduling
