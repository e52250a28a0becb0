#include "scheduling/group.h"

namespace helm::scheduling {

void Group::join(Id id) {
  Sequence& sequence = sequences_[id];
  kv_ += sequence.cached;
  sequence.end = steps_ + sequence.output - sequence.produced;
  sequence.cached -= steps_, sequence.produced -= steps_;
  sequence.place = count();
  members_.push_back(id);
  ++residues_[static_cast<size_t>(wrapped(sequence.cached))];
  ends_.emplace(sequence.end, id);
}

void Group::leave(Id id) {
  Sequence& sequence = sequences_[id];
  --residues_[static_cast<size_t>(wrapped(sequence.cached))];
  sequence.cached += steps_, sequence.produced += steps_;
  kv_ -= sequence.cached;
  const Id last = members_.back();
  members_[static_cast<size_t>(sequence.place)] = last;
  sequences_[last].place = sequence.place;
  members_.pop_back();
}

int64_t Group::growth(int64_t steps) const {
  int64_t blocks = steps / block() * count();
  for (int64_t ahead = 1; ahead <= steps % block(); ++ahead) blocks += growing(ahead);
  return blocks;
}

int64_t Group::steps_within(int64_t free) const {
  int64_t steps = free / count() * block(), left = free % count();
  for (int64_t ahead = 1; ahead <= block() && growing(ahead) <= left; ++ahead, ++steps) left -= growing(ahead);
  return steps;
}

int64_t Group::steps_to_end() {
  forget_gone();
  return ends_.top().first - steps_;
}

Id Group::finished() {
  forget_gone();
  return !ends_.empty() && ends_.top().first == steps_ ? ends_.top().second : -1;
}

void Group::forget_gone() {
  const auto gone = [&](const End& end) {
    const auto& [step, id] = end;
    return !sequences_.lives(id) || sequences_[id].status != Status::on_gpu || sequences_[id].end != step;
  };
  while (!ends_.empty() && gone(ends_.top())) ends_.pop();
}

}  // namespace helm::scheduling
