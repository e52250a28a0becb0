#include "scheduling/closed_loop.h"

#include <algorithm>
#include <limits>

namespace helm::scheduling {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

template <typename Get>
Replica& first(const Replicas& replicas, Get get) {
  const auto earlier = [&](const auto& one, const auto& other) { return get(*one) < get(*other); };
  return **std::min_element(replicas.begin(), replicas.end(), earlier);
}

// No request ends before at a replica other than `replica`.
double others_quiet(const Replicas& replicas, const Replica& replica) {
  double until = kNever;
  for (const auto& other : replicas)
    if (other.get() != &replica) until = std::min(until, other->quiet());
  return until;
}

}  // namespace

ClosedLoop::ClosedLoop(const Requests& requests, std::vector<double>& arrival)
    : requests_(requests),
      arrival_(arrival),
      cancel_(requests.cancel, requests.cancel + requests.count),
      sends_({}, std::vector<double>(requests.starts, requests.starts + requests.users)) {
  requests_.arrival = arrival_.data(), requests_.cancel = cancel_.data();
}

double ClosedLoop::next_send() const { return sends_.empty() || sent_ == requests_.count ? kNever : sends_.top(); }

void ClosedLoop::send(Replicas& replicas, Router& router) {
  const int64_t request = sent_++;
  const double now = sends_.top();
  sends_.pop();
  arrival_[static_cast<size_t>(request)] = now, cancel_[static_cast<size_t>(request)] += now;
  if (!replicas[router.choose(replicas, requests_, request)]->expect(request))
    sends_.push(now + requests_.think[request]);
}

void ClosedLoop::step(Replica& replica, double until) {
  const size_t before = replica.over().size();
  replica.step(until);
  for (size_t i = before; i < replica.over().size(); ++i)
    sends_.push(replica.now() + requests_.think[replica.over()[i]]);
}

void ClosedLoop::serve(Replicas& replicas, Router& router) {
  while (!replicas.front()->lost()) {
    Replica& lands = first(replicas, [](const Replica& replica) { return replica.landing(); });
    Replica& launches = first(replicas, [](const Replica& replica) { return replica.launching(); });
    const double landing = lands.landing(), launching = launches.launching(), sending = next_send();
    if (std::min({landing, launching, sending}) == kNever) return;
    if (due(landing, std::min(launching, sending))) {
      step(lands, kNever);
    } else if (due(sending, launching)) {
      send(replicas, router);
    } else {
      step(launches, std::max(launching, std::min(sending, others_quiet(replicas, launches))));
    }
  }
}

}  // namespace helm::scheduling
