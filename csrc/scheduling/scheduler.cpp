#include "scheduling/scheduler.h"

#include <stdexcept>
#include <utility>

namespace helm::scheduling {

Scheduler::Scheduler(Cost believed, const Limits& limits, std::unique_ptr<Policy> policy, int64_t hash_block)
    : believed_(std::move(believed)),
      policy_(std::move(policy)),
      state_(limits, policy_->homes(), policy_->pool(), hash_block) {
  if (hash_block < 0 || hash_block % limits.block != 0)
    throw std::invalid_argument("blocks of prefixes are whole blocks");
}

void Scheduler::add(int64_t request, int64_t prompt, int64_t output, int64_t priority, std::vector<int64_t> hashes) {
  if (request <= last_) throw std::invalid_argument("requests are numbered as they come");
  if (prompt < 1 || output < 1 || !state_.fits(prompt, output))
    throw std::invalid_argument("a request beyond the context, or that no cache has room for");
  last_ = request;
  const Hashes found{hashes.data(), static_cast<int64_t>(hashes.size())};
  const Id id = state_.add(prompt, output, priority, found);
  numbers_[request] = id, requests_[id] = {request, std::move(hashes)};
}

void Scheduler::cancel(int64_t request) {
  const auto found = numbers_.find(request);
  if (found == numbers_.end()) return;
  if (deciding_) return cancelled_.push_back(request);
  state_.end(found->second);
  forget(found->second);
}

void Scheduler::reset() {
  take_back();
  while (!numbers_.empty()) cancel(numbers_.begin()->first);
  state_.forget_prefixes();
}

const Decision* Scheduler::decide() {
  take_back();
  state_.begin(clock_.now());
  try {
    policy_->decide(state_, believed_);
    state_.keep_snapshots();
  } catch (...) {
    state_.take_back();
    throw;
  }
  const Decision& made = state_.decision();
  deciding_ = !made.idle() || !made.out.empty() || !made.dropped.empty();
  return deciding_ ? &made : nullptr;
}

void Scheduler::commit(double seconds, const std::vector<int64_t>& ended,
                       const std::optional<std::vector<int64_t>>& yielded) {
  if (!deciding_) throw std::logic_error("no pass has been decided");
  const Kind kind = state_.decision().kind;
  const Load& load = state_.load();
  if (measured_) {
    measured_->seconds = seconds;
    const Times priced = time_of(believed_, kind, load);
    priced_ += priced, took_ += *measured_;
    if (policy_->learns() && !(state_.decision().pure() && policy_->steady(state_)))
      policy_->observe(kind, load, priced, *measured_);
  }
  clock_.add(seconds);
  const auto came = yielded ? std::optional<std::vector<Id>>(numbers(*yielded)) : std::nullopt;
  const double host = host_seconds(believed_, kind, load, seconds);
  for (const Id id : state_.commit(clock_.now(), host, believed_, came).finished) forget(id);
  cancelled_.insert(cancelled_.end(), ended.begin(), ended.end());
  finish_pass();
}

// Of those that are not over.
std::vector<Id> Scheduler::numbers(const std::vector<int64_t>& requests) const {
  std::vector<Id> found;
  for (const int64_t request : requests)
    if (const auto each = numbers_.find(request); each != numbers_.end()) found.push_back(each->second);
  return found;
}

void Scheduler::take_back() {
  if (!deciding_) return;
  state_.take_back();
  finish_pass();
}

void Scheduler::finish_pass() {
  deciding_ = false;
  measured_.reset();
  for (const int64_t request : std::exchange(cancelled_, {})) cancel(request);
}

void Scheduler::forget(Id id) {
  numbers_.erase(requests_.at(id).number);
  requests_.erase(id);
}

}  // namespace helm::scheduling
