#include "state.h"

#include <algorithm>
#include <stdexcept>

namespace helm::scheduling {
namespace {

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

void erase(std::vector<Id>& from, Id id) { from.erase(std::find(from.begin(), from.end(), id)); }

size_t index(Home home) { return static_cast<size_t>(home); }

}  // namespace

State::State(const Limits& limits, Homes homes, int layers, int64_t hash_block)
    : limits_(limits),
      homes_(homes),
      layers_(layers),
      hash_block_(hash_block),
      group_(sequences_, limits.block),
      gpu_blocks_(limits.gpu_tokens / limits.block),
      cpu_blocks_(limits.cpu_tokens / limits.block) {}

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

// At least one token of a prompt is computed: it yields the next one.
int64_t State::matched(Hashes hashes, int64_t prompt) const {
  return hash_block_ == 0 ? 0 : prefixes_.match(hashes, (prompt - 1) / hash_block_);
}

int64_t State::prompt_left(Id id, Home home) const {
  const Sequence& sequence = sequences_[id];
  const bool begins = sequence.status == Status::waiting && home == Home::gpu;
  return sequence.prompt - sequence.cached - (begins ? matched(id) * hash_block_ : 0);
}

int64_t State::prompt_blocks(Id id, int64_t count, Home home) const {
  const Sequence& sequence = sequences_[id];
  if (sequence.status != Status::waiting) return limits_.blocks(sequence.cached + count) - limits_.blocks(sequence.cached);
  const int64_t found = home == Home::gpu ? matched(id) : 0;
  const int64_t own = limits_.blocks(found * hash_block_ + count) - found * hash_blocks();
  return own + prefixes_.idle_among(sequence.hashes, found) * hash_blocks();
}

int64_t State::cpu_decode_blocks(Id id) const {
  const Sequence& sequence = sequences_[id];
  return sequence.in_cohort ? 0 : limits_.blocks(sequence.cached + 1) - limits_.blocks(sequence.cached);
}

// ---- Making a pass

void State::begin(double now) {
  now_ = now;
  decision_.clear();
  load_ = Load{};
}

void State::take(Home home, int64_t count) {
  if (home == Home::gpu)
    for (; gpu_blocks_.free() < count && prefixes_.idle() > 0; gpu_blocks_.give(hash_blocks())) prefixes_.evict();
  mine(home).take(count);
  most_[index(home)] = std::max(most_[index(home)], blocks(home).capacity() - free(home));
}

void State::preempt(Id id) {
  require(decision_.decodes == 0, "who leaves, leaves before the others decode");
  const bool decodes = sequences_[id].status != Status::prompting;
  leave(id);
  Sequence& sequence = sequences_[id];
  if (decodes) sequence.prompt = sequence.cached + 1;  // the last token has come, and is not cached yet
  release(id);
  set_cached(id, 0);
  sequence.status = Status::waiting, sequence.home = Home::none;
  waiting_.insert(rank(id));
  decision_.dropped.push_back(id);
}

void State::swap_out(Id id, bool pause) {
  require(decision_.decodes == 0, "who leaves, leaves before the others decode");
  require(sequences_[id].status == Status::on_gpu, "only what decodes on the accelerator is swapped out");
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
  }
  decision_.out.push_back(id);
  load_.half[0].swap_out += cached;
}

void State::swap_in(Id id) {
  require(decision_.decodes == 0, "who comes back, comes before the others decode");
  leave(id);
  Sequence& sequence = sequences_[id];
  require(sequence.home == Home::cpu, "only what is at the host is swapped in");
  const int64_t cached = sequence.cached;
  release(id);
  set_cached(id, 0);
  take(Home::gpu, limits_.blocks(cached));
  sequence.home = Home::gpu, sequence.cached = cached;
  join_gpu(id);
  decision_.in.push_back(id);
  load_.half[0].swap_in += cached;
}

void State::decode_on_gpu() {
  require(decision_.decodes == 0, "a pass decodes once");
  decision_.decodes = group_.count();
  take(Home::gpu, group_.growth(1));
  Work& work = load_.half[0];
  work.tokens += group_.count(), work.outputs += group_.count(), work.gpu_kv += group_.kv() + group_.count();
}

void State::prompt(Id id, int64_t count, Home home) {
  Sequence& sequence = sequences_[id];
  if (sequence.status == Status::waiting) {
    require(running() < limits_.sequences, "more requests than may run");
    waiting_.erase(rank(id));
    sequence.status = Status::prompting, sequence.home = home;
    prompting_.insert(std::upper_bound(prompting_.begin(), prompting_.end(), id,
                                       [&](Id one, Id other) { return rank(one) < rank(other); }),
                      id);
    if (home == Home::gpu) reuse(id);
  }
  require(sequence.status == Status::prompting && sequence.home == home, "prompts stay where they began");
  const int64_t past = sequence.cached;
  require(count > 0 && past + count <= sequence.prompt, "no more of a prompt than there is");
  take(home, limits_.blocks(past + count) - limits_.blocks(past));
  decision_.prompts.push_back({id, count, past, home});
  Work& work = load_.half[0];
  work.prompt(count, past, past + count == sequence.prompt);
  if (home == Home::cpu) work.swap_out += count, work.swap_in += past;  // layer by layer, what came before it too
}

// What is in the prefix cache is held from now on.
void State::reuse(Id id) {
  Sequence& sequence = sequences_[id];
  const int64_t found = matched(id);
  for (int64_t i = 0; i < found; ++i) prefixes_.hold(sequence.hashes.at[i]);
  sequence.shared = found, shared_ += found;
  set_cached(id, found * hash_block_);
}

void State::decode_on_cpu(Id id, int half) {
  Sequence& sequence = sequences_[id];
  require(sequence.status == Status::on_cpu, "only what is at the host decodes there");
  if (sequence.in_cohort) {
    load_.done_layers = cohort_.layers;
    if (half == 1) load_.cohort.decode_on_cpu(sequence.cached);
    leave_cohort(id);
  } else {
    take(Home::cpu, cpu_decode_blocks(id));
  }
  decision_.cpu[static_cast<size_t>(half)].push_back(id);
  load_.half[static_cast<size_t>(half)].decode_on_cpu(sequence.cached);
}

void State::defer(const std::vector<Id>& members) {
  require(cohort_.members.empty() || members.empty(), "a cohort goes its way before the next one");
  decision_.kind = Kind::deferred;
  for (const Id id : members) {
    take(Home::cpu, cpu_decode_blocks(id));
    sequences_[id].in_cohort = true;
    cohort_.work.decode_on_cpu(sequences_[id].cached);
    cohort_.members.push_back(id);
  }
  decision_.cpu[0] = cohort_.members;
  if (cohort_.left > 0) return;
  load_.cohort = cohort_.work;
  if (cohort_.layers == layers_ - 1) load_.half[0].outputs += cohort_.work.outputs;
}

// ---- Joining and leaving

void State::set_cached(Id id, int64_t cached) {
  Sequence& sequence = sequences_[id];
  const int64_t change = cached - sequence.cached;
  kv_[index(sequence.home)] += change;
  if (sequence.status == Status::on_cpu) cpu_kv_ += change;
  sequence.cached = cached;
}

void State::join_gpu(Id id) {
  group_.join(id);
  sequences_[id].status = Status::on_gpu;
}

void State::join_cpu(Id id) {
  Sequence& sequence = sequences_[id];
  cpu_.push_back(id);
  cpu_kv_ += sequence.cached;
  sequence.status = Status::on_cpu;
}

// Its last token came with the last pass.
void State::leave_gpu(Id id) {
  group_.leave(id);
  Sequence& sequence = sequences_[id];
  sequence.status = Status::swapped;
  kv_[index(Home::gpu)] += sequence.cached;
  sequence.last_token = now_;
}

void State::leave_cpu(Id id) {
  erase(cpu_, id);
  cpu_kv_ -= sequences_[id].cached;
  if (sequences_[id].in_cohort) {
    leave_cohort(id);
    cpu_blocks_.give(cpu_decode_blocks(id));
  }
  sequences_[id].status = Status::swapped;
}

void State::leave_cohort(Id id) {
  Sequence& sequence = sequences_[id];
  sequence.in_cohort = false;
  erase(cohort_.members, id);
  --cohort_.work.tokens, --cohort_.work.outputs, --cohort_.work.cpu_requests;
  cohort_.work.cpu_kv -= sequence.cached + 1;
  if (cohort_.members.empty()) cohort_ = Cohort{};
}

// From wherever `id` is; it belongs nowhere afterwards, but keeps its cache.
void State::leave(Id id) {
  switch (sequences_[id].status) {
    case Status::waiting: waiting_.erase(rank(id)); break;
    case Status::prompting: erase(prompting_, id); break;
    case Status::on_gpu: leave_gpu(id); break;
    case Status::on_cpu: leave_cpu(id); break;
    case Status::swapped: swapped_.erase(rank(id)); break;
    case Status::ended: require(false, "it has ended");
  }
  sequences_[id].status = Status::swapped;
}

// Its blocks; those of a prefix from the end, so that the beginning, which others share, stays longest.
void State::release(Id id) {
  Sequence& sequence = sequences_[id];
  if (sequence.home == Home::none) return;
  mine(sequence.home).give(limits_.blocks(sequence.cached) - sequence.shared * hash_blocks());
  for (int64_t i = sequence.shared; i-- > 0;) prefixes_.release(sequence.hashes.at[i]);
  shared_ -= sequence.shared;
  sequence.shared = 0;
}

// Blocks of its prompt that have been computed go to the prefix cache, which may have them already.
void State::share(Id id) {
  Sequence& sequence = sequences_[id];
  if (sequence.home != Home::gpu) return;
  for (; sequence.shared < sequence.hashes.count && (sequence.shared + 1) * hash_block_ <= sequence.cached;
       ++sequence.shared, ++shared_)
    if (!prefixes_.insert(sequence.hashes.at[sequence.shared])) gpu_blocks_.give(hash_blocks());
}

// ---- What happens

bool State::fits(int64_t prompt, int64_t output) const {
  const int64_t gpu = homes_.gpu ? gpu_blocks_.capacity() : 0, cpu = homes_.cpu ? cpu_blocks_.capacity() : 0;
  return limits_.blocks(prompt + output - 1) <= std::max(gpu, cpu);
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
  if (!came.value_or(done)) {
    cohort_.layers = std::min(cohort_.layers, layers_ - 1);
    return;
  }
  const std::vector<Id> members = cohort_.members;
  for (const Id id : members) leave_cohort(id);
  for (const Id id : members) commit_cpu(id, end);
}

// The host works through the pass, whatever its kind; a layer that began with it takes `layer` seconds of it. True when
// the last layer is done.
bool State::cohort_done(double seconds, double layer) {
  if (cohort_.left <= 0) {
    if (decision_.kind != Kind::deferred) return false;
    cohort_.left = layer;
  }
  cohort_.left -= seconds;
  if (cohort_.left > 1e-12 * seconds) return false;
  cohort_.left = 0;
  return ++cohort_.layers >= layers_;
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
