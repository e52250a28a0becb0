// gpu-only: continuous batching with chunked prefill, as vLLM schedules. Decodes go first, then prompts that have
// begun, then waiting ones in order, while tokens, places and blocks last; who finds no block drives out the last.
#include <algorithm>

#include "policies.h"

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
    bool crowded = make_room(state);
    crowded |= let_prompt_go_on(state);
    if (!crowded) bring_back(state);
    if (state.gpu().count() > 0) state.decode_on_gpu();
    const bool all = go_on(state);
    if (all && !crowded && state.swapped().empty()) admit(state);
  }

 private:
  // Tokens that this pass still has room for, with everybody decoding who may.
  static int64_t room(const State& state) {
    return state.limits().budget() - std::max(state.load().half[0].tokens, state.gpu().count());
  }

  // The last by rank of those that hold blocks.
  static Rank last(const State& state) {
    Rank found = state.prompting().empty() ? Rank{INT64_MIN, -1} : state.rank(state.prompting().back());
    for (const Id id : state.gpu().members()) found = std::max(found, state.rank(id));
    return found;
  }

  void drive_out(State& state, Id id) const {
    const bool decodes = state.sequence(id).status == Status::on_gpu;
    if (swaps_ && decodes && state.moved_blocks(id) <= state.free(Home::cpu)) {
      state.swap_out(id, true);
    } else {
      state.preempt(id);
    }
  }

  bool make_room(State& state) const {
    bool crowded = false;
    for (; state.gpu().growth(1) > state.free(Home::gpu); crowded = true) drive_out(state, last(state).second);
    return crowded;
  }

  // The first prompt that has begun drives out whoever comes after it.
  bool let_prompt_go_on(State& state) const {
    bool crowded = false;
    for (; !state.prompting().empty(); crowded = true) {
      const Id first = state.prompting().front();
      const int64_t count = std::min(room(state), state.prompt_left(first, Home::gpu));
      if (count <= 0) break;
      const int64_t wanted = state.gpu().growth(1) + state.prompt_blocks(first, count, Home::gpu);
      const Rank victim = last(state);
      if (wanted <= state.free(Home::gpu) || victim <= state.rank(first)) break;
      drive_out(state, victim.second);
    }
    return crowded;
  }

  void bring_back(State& state) const {
    while (!state.swapped().empty() && state.running() < state.limits().sequences && room(state) > 0) {
      const Id id = state.swapped().begin()->second;
      const int64_t wanted = state.gpu().growth(1) + state.limits().blocks(state.cached(id) + 1);
      if (wanted > state.free(Home::gpu)) return;
      state.swap_in(id);
    }
  }

  // False if a prompt that has begun found no tokens or blocks.
  bool go_on(State& state) const {
    for (const Id id : state.prompting()) {
      const int64_t count = std::min(room(state), state.prompt_left(id, Home::gpu));
      if (count <= 0 || state.prompt_blocks(id, count, Home::gpu) > state.free(Home::gpu)) return false;
      state.prompt(id, count, Home::gpu);
    }
    return true;
  }

  void admit(State& state) const {
    while (!state.waiting().empty() && state.running() < state.limits().sequences && room(state) > 0) {
      const Id id = state.waiting().begin()->second;
      const int64_t left = state.prompt_left(id, Home::gpu), count = std::min(room(state), left);
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
