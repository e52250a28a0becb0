// State: requests come and go, passes end.
#include "scheduling/state_impl.h"

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
  sequence.hashes.count = parts_ == 0 ? 0 : std::min(hashes.count, prompt / (parts_ * hash_block_));
  ranked_ |= sequences_.next() > 0 && priority != newest_priority_;
  newest_priority_ = priority;
  const Id id = sequences_.add(sequence);
  if (limits_.keeps) name_blocks(id);
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

const Outcome& State::commit(double end, double seconds, const Cost& cost, const std::optional<std::vector<Id>>& came) {
  require(decision_.decodes == group_.count(), "who is on the accelerator decodes in every pass");
  outcome_.clear();
  now_ = end;
  commit_group(end);
  if (decision_.kind != Kind::deferred)
    for (const auto& half : decision_.cpu)
      for (const Id id : half) commit_cpu(id, end);
  const std::vector<int64_t> done = cohorts_.pass(seconds, decision_.kind == Kind::deferred, cost);
  for (const int64_t number : came ? cohorts_of(*came) : done) commit_cohort(number, end);
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

void State::commit_cohort(int64_t number, double end) {
  const std::vector<Id> members = cohorts_[number].members;
  for (const Id id : members) leave_cohort(id);
  for (const Id id : members) commit_cpu(id, end);
}

// Those of whose members any is in `came`.
std::vector<int64_t> State::cohorts_of(const std::vector<Id>& came) const {
  std::vector<int64_t> found;
  for (const Id id : came)
    if (const int64_t number = sequences_[id].cohort; number > 0) found.push_back(number);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

void State::commit_prompt(const Chunk& chunk, double end) {
  Sequence& sequence = sequences_[chunk.id];
  if (!sequence.started) outcome_.started.push_back(chunk);
  sequence.started = true;
  set_cached(chunk.id, sequence.cached + chunk.tokens);
  share(chunk.id);
  const auto& kept = decision_.kept;
  if (std::find(kept.begin(), kept.end(), chunk.id) != kept.end())
    prefixes_.keep(sequence.hashes.at[sequence.cached / hash_block_ - 1]);
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
