// State: requests join and leave queues and caches.
#include "scheduling/state_impl.h"

namespace helm::scheduling {

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
  if (sequences_[id].cohort > 0) {
    leave_cohort(id);
    cpu_blocks_.give(cpu_decode_blocks(id));
  }
  sequences_[id].status = Status::swapped;
}

void State::leave_cohort(Id id) {
  Sequence& sequence = sequences_[id];
  cohorts_.leave(sequence.cohort, id, sequence.cached);
  sequence.cohort = 0;
}

// From wherever `id` is; it belongs nowhere afterwards, but keeps its cache.
void State::leave(Id id) {
  switch (sequences_[id].status) {
    case Status::waiting:
      waiting_.erase(rank(id));
      break;
    case Status::prompting:
      erase(prompting_, id);
      break;
    case Status::on_gpu:
      leave_gpu(id);
      break;
    case Status::on_cpu:
      leave_cpu(id);
      break;
    case Status::swapped:
      swapped_.erase(rank(id));
      break;
    case Status::ended:
      require(false, "it has ended");
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

// Every block that it may fill: as many names as a hash stands for blocks, then names that nobody else has.
void State::name_blocks(Id id) {
  Sequence& sequence = sequences_[id];
  const int64_t named = sequence.hashes.count * parts_;
  auto names = std::make_shared<std::vector<int64_t>>();
  for (int64_t i = 0; i < named; ++i) names->push_back(sequence.hashes.at[i / parts_] * parts_ + i % parts_);
  const int64_t all = (sequence.prompt + sequence.output - 1) / hash_block_;
  for (int64_t i = named; i < all; ++i) names->push_back(-++unnamed_);
  sequence.own = names;
  sequence.hashes = {names->data(), named};
}

// Whole blocks of what it has cached become blocks of the prefix cache, so that it finds those that are still there.
void State::keep(Id id) {
  Sequence& sequence = sequences_[id];
  if (sequence.home != Home::gpu) return;
  sequence.hashes.count = sequence.cached / hash_block_;
  share(id);
}

}  // namespace helm::scheduling
