// State: requests come and go, passes end.
#include "state_impl.h"

namespace helm::scheduling {

bool State::fits(int64_t prompt, int64_t output) const {
  const int64_t gpu = homes_.gpu ? gpu_blocks_.capacity() : 0, cpu = homes_.cpu ? cpu_blocks_.capacity() : 0;
  return prompt + output <= limits_.context && limits_.blocks(prompt + output - 1) <= std::max(gpu, cpu);
}

Id State::add(int64_t prompt, int64_t output, int64_t priority, Hashes hashes) {
  require(fits(prompt, output), "a request that can never run");
  Sequence sequence;
  sequence.prompt = prompt, sequence.output = output, sequence.priority = priority;
  sequence.hashes = hashes;
  sequence.hashes.count = hash_block_ == 0 ? 0 : std::min(hashes.count, prompt / hash_block_);
  const Id id = sequences_.add(sequence);
  waiting_.insert(rank(id));
  return id;
}

void State::end(Id id) {
  leave(id);
  release(id);
  set_cached(id, 0);
  sequences_.end(id);
}

void State::finish(Id id) {
  outcome_.finished.push_back(id);
  end(id);
}

int64_t State::repeats() {
  return std::min(group_.steps_to_end(), group_.steps_within(free(Home::gpu) + group_.growth(1)));
}

void State::repeat(int64_t more) {
  if (more == 0) return;
  require(decision_.pure(), "only passes of nothing but decodes on the accelerator repeat");
  take(Home::gpu, group_.growth(more + 1) - group_.growth(1));
  group_.step(more);
}

void State::forget_prefixes() {
  while (prefixes_.idle() > 0) evict();
  decision_.clear();
}

const Outcome& State::commit(double end, double seconds, double layer, std::optional<bool> came) {
  require(decision_.decodes == group_.count(), "who is on the accelerator decodes in every pass");
  outcome_.clear();
  now_ = end;
  commit_group(end);
  if (decision_.kind != Kind::deferred)
    for (const auto& half : decision_.cpu)
      for (const Id id : half) commit_cpu(id, end);
  commit_cohort(end, seconds, layer, came);
  for (const Chunk& chunk : decision_.prompts) commit_prompt(chunk, end);
  return outcome_;
}

void State::take_back() {
  if (decision_.decodes > 0) gpu_blocks_.give(group_.growth(1));
  for (const auto& [id, tokens, past, home] : decision_.prompts)
    mine(home).give(limits_.blocks(past + tokens) - limits_.blocks(past));
  if (decision_.kind != Kind::deferred)
    for (const auto& half : decision_.cpu)
      for (const Id id : half) cpu_blocks_.give(cpu_decode_blocks(id));
  decision_.clear();
}

void State::commit_group(double end) {
  group_.step(1);
  outcome_.even = group_.count();
  for (const Id id : decision_.in) {
    yield_odd(id, end, false);
    --outcome_.even;
  }
  for (Id id = group_.finished(); id >= 0; id = group_.finished()) finish(id);
}

void State::commit_cpu(Id id, double end) {
  Sequence& sequence = sequences_[id];
  yield_odd(id, end, true);
  set_cached(id, sequence.cached + 1);
  if (++sequence.produced == sequence.output) finish(id);
}

void State::yield_odd(Id id, double end, bool on_cpu) {
  Sequence& sequence = sequences_[id];
  outcome_.odd.push_back({id, end - sequence.last_token, on_cpu});
  sequence.last_token = end;
}

void State::commit_cohort(double end, double seconds, double layer, std::optional<bool> came) {
  if (cohort_.members.empty()) return;
  const bool done = cohort_done(seconds, layer);
  if (!came.value_or(done)) return;
  const std::vector<Id> members = cohort_.members;
  for (const Id id : members) leave_cohort(id);
  for (const Id id : members) commit_cpu(id, end);
}

// The host works through the pass, whatever its kind; a layer that began with it takes `layer` seconds of it. True when
// the pass had the stage after the last layer.
bool State::cohort_done(double seconds, double layer) {
  if (cohort_.left <= 0) {
    if (decision_.kind != Kind::deferred) return false;
    if (cohort_.layers == layers_) return true;
    cohort_.left = layer;
  }
  cohort_.left -= seconds;
  if (cohort_.left > 1e-12 * seconds) return false;
  cohort_.left = 0, ++cohort_.layers;
  return false;
}

void State::commit_prompt(const Chunk& chunk, double end) {
  Sequence& sequence = sequences_[chunk.id];
  if (!sequence.started) outcome_.started.push_back(chunk);
  sequence.started = true;
  set_cached(chunk.id, sequence.cached + chunk.tokens);
  share(chunk.id);
  if (sequence.cached < sequence.prompt) return;
  if (sequence.produced == 0) {
    outcome_.first.push_back(chunk.id);
    sequence.last_token = end;
  } else {
    yield_odd(chunk.id, end, false);
  }
  if (++sequence.produced == sequence.output) return finish(chunk.id);
  erase(prompting_, chunk.id);
  if (chunk.home == Home::cpu) return join_cpu(chunk.id);
  kv_[index(Home::gpu)] -= sequence.cached;
  join_gpu(chunk.id);
}

}  // namespace helm::scheduling
