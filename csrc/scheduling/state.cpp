#include <algorithm>

#include "scheduling/state_impl.h"

namespace helm::scheduling {
namespace {

// Of the cache, what is evicted at a time: its inverse. Blocks that are freed one by one are nowhere next to each
// other, and attention over single blocks is slower (docs/measurements.md, "Serving policies").
constexpr int64_t kEvictedPart = 8;

}  // namespace

State::State(const Limits& limits, Homes homes, Pool pool, int64_t hash_block)
    : limits_(limits),
      homes_(homes),
      hash_block_(limits.keeps ? limits.block : hash_block),
      parts_(hash_block == 0 || hash_block % hash_block_ != 0 ? 0 : hash_block / hash_block_),
      group_(sequences_, limits.block),
      cohorts_(pool),
      gpu_blocks_(limits.gpu_tokens / limits.block),
      cpu_blocks_(limits.cpu_tokens / limits.block),
      prefixes_(limits.states) {}

int64_t State::cached(Id id) const {
  const Sequence& sequence = sequences_[id];
  return sequence.status == Status::on_gpu ? sequence.cached + group_.steps() : sequence.cached;
}

int64_t State::produced(Id id) const {
  const Sequence& sequence = sequences_[id];
  return sequence.status == Status::on_gpu ? sequence.produced + group_.steps() : sequence.produced;
}

int64_t State::running() const { return static_cast<int64_t>(prompting_.size() + cpu_.size()) + group_.count(); }

int64_t State::free(Home home) const {
  return blocks(home).free() + (home == Home::gpu ? prefixes_.idle() * hash_blocks() : 0);
}

int64_t State::tokens(Home home) const {
  const int64_t once = home == Home::gpu ? group_.kv() - (shared_ - prefixes_.held()) * hash_block_ : 0;
  return kv_[index(home)] + once;
}

bool State::settled() const {
  return waiting_.empty() || (running() >= limits_.sequences && !ranked_) || parting(waiting_.begin()->second) == 0;
}

// At least one token of a prompt is computed: it yields the next one.
int64_t State::matched(Hashes hashes, int64_t prompt) const {
  return hash_block_ == 0 ? 0 : prefixes_.match(hashes, (prompt - 1) / hash_block_);
}

int64_t State::prompt_left(Id id, Home home) const {
  const Sequence& sequence = sequences_[id];
  const bool begins = sequence.status == Status::waiting && home == Home::gpu;
  return sequence.prompt - sequence.cached - (begins ? matched(id) * hash_block_ : 0);
}

// Prompts that begin alike part where the cache has no more blocks of one, and go on behind their own last block.
int64_t State::prompt_part(Id id, Home home) const {
  const int64_t left = prompt_left(id, home), past = sequences_[id].prompt - left;
  if (limits_.snapshots == 0 || home != Home::gpu) return left;
  for (const int64_t end : {parting(id), sharable(id) * hash_block_})
    if (end > past) return end - past;
  return left;
}

int64_t State::sharable(Id id) const {
  if (hash_block_ == 0) return 0;
  return std::min(sequences_[id].hashes.count, (sequences_[id].prompt - 1) / hash_block_);
}

int64_t State::parting(Id id) const {
  const Sequence& sequence = sequences_[id];
  if (sequence.status != Status::waiting) return sequence.parting;
  return prefixes_.here(sequence.hashes, sharable(id)) * hash_block_;
}

std::optional<int64_t> State::snapshot_at(Id id, int64_t cached) const {
  const Sequence& sequence = sequences_[id];
  if (limits_.snapshots == 0 || cached == 0 || sequence.home != Home::gpu) return {};
  if (cached != sequence.parting && cached != sharable(id) * hash_block_) return {};
  const int64_t hash = sequence.hashes.at[cached / hash_block_ - 1];
  return prefixes_.has_snapshot(hash) ? std::nullopt : std::optional(hash);
}

bool State::may_leave(Id id) const {
  const bool room = !limits_.states || static_cast<int64_t>(swapped_.size()) < limits_.sequences;
  return room && moved_blocks(id) <= free(Home::cpu);
}

int64_t State::prompt_blocks(Id id, int64_t count, Home home) const {
  const Sequence& sequence = sequences_[id];
  if (sequence.status != Status::waiting)
    return limits_.blocks(sequence.cached + count) - limits_.blocks(sequence.cached);
  const int64_t found = home == Home::gpu ? matched(id) : 0;
  const int64_t own = limits_.blocks(found * hash_block_ + count) - found * hash_blocks();
  return own + prefixes_.idle_among(sequence.hashes, found) * hash_blocks();
}

int64_t State::cpu_decode_blocks(Id id) const {
  const Sequence& sequence = sequences_[id];
  return sequence.cohort > 0 ? 0 : limits_.blocks(sequence.cached + 1) - limits_.blocks(sequence.cached);
}

// ---- Making a pass

void State::begin(double now) {
  now_ = now;
  ++pass_;
  decision_.clear();
  load_ = Load{};
}

// Many at a time: what was held together lies together, so who takes it next has more of it in a row than if each
// wanted one. How many does not depend on how many are wanted, or a run of passes would not equal its passes.
void State::evict() {
  const int64_t many = gpu_blocks_.capacity() / kEvictedPart / hash_blocks();
  const int64_t batch = limits_.keeps ? 1 : std::max<int64_t>(1, many);
  for (int64_t i = 0; i < batch && prefixes_.idle() > 0; ++i) {
    decision_.evicted.push_back(prefixes_.evict());
    gpu_blocks_.give(hash_blocks());
  }
}

void State::take(Home home, int64_t count) {
  if (home == Home::gpu)
    while (gpu_blocks_.free() < count && prefixes_.idle() > 0) evict();
  mine(home).take(count);
  most_[index(home)] = std::max(most_[index(home)], blocks(home).capacity() - free(home));
}

void State::preempt(Id id) {
  require(decision_.decodes == 0 && !used(id), "who leaves, leaves before it and the others go on");
  require(sequences_[id].status != Status::waiting, "who waits has nothing to give up");
  const bool decodes = sequences_[id].status != Status::prompting;
  leave(id);
  Sequence& sequence = sequences_[id];
  if (decodes) sequence.prompt = sequence.cached + 1;  // the last token has come, and is not cached yet
  if (limits_.keeps) keep(id);
  release(id);
  set_cached(id, 0);
  sequence.status = Status::waiting, sequence.home = Home::none;
  waiting_.insert(rank(id));
  decision_.dropped.push_back(id);
}

void State::swap_out(Id id, bool pause) {
  require(decision_.decodes == 0, "who leaves, leaves before the others decode");
  require(sequences_[id].status == Status::on_gpu, "only what decodes on the accelerator is swapped out");
  require(pause || kept_at(Home::cpu), "nobody decodes on the host");
  require(may_leave(id), "no room at the host");
  leave_gpu(id);
  Sequence& sequence = sequences_[id];
  const int64_t cached = sequence.cached;
  release(id);
  set_cached(id, 0);
  take(Home::cpu, limits_.blocks(cached));
  sequence.home = Home::cpu;
  set_cached(id, cached);
  if (pause) {
    sequence.status = Status::swapped;
    swapped_.insert(rank(id));
  } else {
    join_cpu(id);
    std::rotate(cpu_.begin(), cpu_.end() - 1, cpu_.end());
  }
  decision_.out.push_back(id);
  load_.half[0].swap_out += cached, load_.half[0].states_out += limits_.states;
}

void State::swap_in(Id id) {
  require(decision_.decodes == 0 && !used(id), "who comes back, comes before it and the others go on");
  Sequence& sequence = sequences_[id];
  const bool paused = sequence.status == Status::swapped;
  require(paused || sequence.status == Status::on_cpu, "only what is at the host is swapped in");
  require(kept_at(Home::gpu) && moved_blocks(id) <= free(Home::gpu), "no room on the accelerator");
  require(!paused || running() < limits_.sequences, "more requests than may run");
  leave(id);
  const int64_t cached = sequence.cached;
  release(id);
  set_cached(id, 0);
  take(Home::gpu, limits_.blocks(cached));
  sequence.home = Home::gpu, sequence.cached = cached;
  join_gpu(id);
  decision_.in.push_back(id);
  load_.half[0].swap_in += cached, load_.half[0].states_in += limits_.states;
}

void State::decode_on_gpu() {
  require(decision_.decodes == 0, "a pass decodes once");
  require(group_.growth(1) <= free(Home::gpu), "no room for the next tokens");
  take(Home::gpu, group_.growth(1));
  decision_.decodes = group_.count();
  Work& work = load_.half[0];
  work.tokens += group_.count(), work.outputs += group_.count();
  work.gpu_requests += group_.count(), work.gpu_kv += group_.kv() + group_.count();
}

void State::prompt(Id id, int64_t count, Home home) {
  Sequence& sequence = sequences_[id];
  const bool begins = sequence.status == Status::waiting;
  require(begins || (sequence.status == Status::prompting && sequence.home == home), "prompts stay where they began");
  require(!used(id), "a request goes on once in a pass");
  require(count > 0 && count <= prompt_left(id, home), "no more of a prompt than there is");
  require(prompt_blocks(id, count, home) <= free(home), "no room for a prompt");
  if (begins) {
    require(kept_at(home), "no cache of the policy's");
    require(running() < limits_.sequences, "more requests than may run");
    waiting_.erase(rank(id));
    sequence.parting = parting(id);
    sequence.status = Status::prompting, sequence.home = home;
    prompting_.insert(std::upper_bound(prompting_.begin(), prompting_.end(), id,
                                       [&](Id one, Id other) { return rank(one) < rank(other); }),
                      id);
    if (home == Home::gpu) reuse(id);
  }
  const int64_t past = sequence.cached;
  take(home, limits_.blocks(past + count) - limits_.blocks(past));
  sequence.pass = pass_;
  decision_.prompts.push_back({id, count, past, home});
  Work& work = load_.half[0];
  work.prompt(count, past, past + count == sequence.prompt);
  if (home == Home::cpu) work.swap_out += count, work.swap_in += past;  // layer by layer, what came before it too
}

// What is in the prefix cache is held from now on.
void State::reuse(Id id) {
  Sequence& sequence = sequences_[id];
  const int64_t found = matched(id);
  if (limits_.states && found > 0) {
    prefixes_.use(sequence.hashes.at[found - 1]);
    ++load_.half[0].states_copied;
  }
  for (int64_t i = 0; i < found; ++i) prefixes_.hold(sequence.hashes.at[i]);
  sequence.shared = found, shared_ += found;
  set_cached(id, found * hash_block_);
}

void State::keep_snapshots() {
  if (limits_.snapshots == 0) return;
  std::vector<int64_t> hashes;
  for (const Chunk& chunk : decision_.prompts) {
    const auto hash = snapshot_at(chunk.id, chunk.past + chunk.tokens);
    if (!hash || std::find(hashes.begin(), hashes.end(), *hash) != hashes.end()) continue;
    if (prefixes_.snapshots() + static_cast<int64_t>(hashes.size()) == limits_.snapshots) {
      if (prefixes_.snapshots() == 0) return;
      decision_.forgotten.push_back(prefixes_.forget());
    }
    hashes.push_back(*hash);
    decision_.kept.push_back(chunk.id);
    ++load_.half[0].states_copied;
  }
}

void State::decode_on_cpu(Id id, int half) {
  Sequence& sequence = sequences_[id];
  require(sequence.status == Status::on_cpu, "only what is at the host decodes there");
  require(!used(id), "a request goes on once in a pass");
  require(cpu_decode_blocks(id) <= free(Home::cpu), "no room for the next token");
  sequence.pass = pass_;
  if (sequence.cohort > 0) {
    load_.at(cohorts_[sequence.cohort].layers).decode_on_cpu(sequence.cached);
    leave_cohort(id);
  } else {
    take(Home::cpu, cpu_decode_blocks(id));
  }
  decision_.cpu[static_cast<size_t>(half)].push_back(id);
  load_.half[static_cast<size_t>(half)].decode_on_cpu(sequence.cached);
}

void State::defer(const std::vector<Id>& members, const Cost& believed) {
  require(members.empty() || !cohorts_.full(), "no more cohorts than may be");
  decision_.kind = Kind::deferred;
  const int64_t number = members.empty() ? 0 : cohorts_.begin();
  for (const Id id : members) {
    take(Home::cpu, cpu_decode_blocks(id));
    sequences_[id].cohort = number;
    cohorts_.enter(number, id, sequences_[id].cached);
  }
  for (const Cohort& cohort : cohorts_.all())
    decision_.cpu[0].insert(decision_.cpu[0].end(), cohort.members.begin(), cohort.members.end());
  cohorts_.join(load_, believed);
}

}  // namespace helm::scheduling
