#include "scheduling/replica.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

namespace helm::scheduling {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr auto kGpu = static_cast<size_t>(Home::gpu), kCpu = static_cast<size_t>(Home::cpu);

Replica::Replica(const Requests& requests, const Costs& costs, const Limits& limits, Policy& policy, Records& records,
                 Mode mode)
    : requests_(requests),
      costs_(costs),
      policy_(policy),
      records_(records),
      mode_(mode),
      one_priority_(requests.one_priority()),
      state_(limits, policy.homes(), policy.pool(), requests.hash_block) {}

void Replica::run(double until) {
  while (!lost()) {
    if (flight_.flies) {
      if (!due(flight_.end.now(), until)) return;
      land();
    }
    deliver();
    if (due(until, clock_.now())) return;
    launch(until);
    if (!flight_.flies && !wait(until)) return;
  }
}

// ---- Single steps

double Replica::landing() const { return flight_.flies ? flight_.end.now() : kNever; }

double Replica::launching() const {
  if (flight_.flies) return kNever;
  return waits_ ? std::max(clock_.now(), std::min(next_arrival(), next_cancel())) : clock_.now();
}

void Replica::step(double until) {
  if (flight_.flies) {
    land();
    waits_ = false;
    return;
  }
  if (waits_) wait(kNever);
  const size_t before = over_.size();
  deliver();
  const bool cancelled = over_.size() > before;
  if (!cancelled) launch(until);
  waits_ = !cancelled && !flight_.flies;
}

double Replica::quiet() const {
  if (!flight_.flies) return launching();
  return delivered_ < inbox_.size() ? flight_.end.now() : flight_.quiet;
}

// ---- Arrivals and cancels

double Replica::next_arrival() const {
  return delivered_ < inbox_.size() ? requests_.arrival[inbox_[delivered_]] : kNever;
}

double Replica::next_cancel() const { return cancels_.empty() ? kNever : cancels_.top().first; }

bool Replica::expect(int64_t request) {
  const bool fits = state_.fits(requests_.prompt[request], requests_.output[request]);
  if (!fits) {
    records_.rejected(request, requests_.arrival[request]);
  } else {
    inbox_.push_back(request);
    if (std::isfinite(requests_.cancel[request])) cancels_.emplace(requests_.cancel[request], request);
  }
  return fits;
}

double Replica::seen() const { return state_.limits().ahead && !state_.empty() ? last_begin_ : clock_.now(); }

void Replica::deliver() {
  while (due(next_arrival(), seen())) arrive(inbox_[delivered_++]);
  for (; due(next_cancel(), clock_.now()); cancels_.pop()) cancel(cancels_.top().second);
}

void Replica::arrive(int64_t request) {
  const Hashes hashes = requests_.hash_block > 0 ? requests_.hashes_of(request) : Hashes{};
  const Id id = state_.add(requests_.prompt[request], requests_.output[request], requests_.priority[request], hashes);
  records_.arrived(id, request);
}

void Replica::cancel(int64_t request) {
  const Id id = records_.number(request);
  if (!state_.lives(id)) return;
  records_.cancelled(id, state_.produced(id), requests_.cancel[request]);
  state_.end(id);
  over_.push_back(request);
}

double Replica::interruption() const {
  const bool behind = !state_.waiting().empty() && one_priority_;
  return behind ? next_cancel() : std::min(next_cancel(), next_arrival());
}

// Nothing runs: on to the next arrival or cancel. False if there is none until then.
bool Replica::wait(double until) {
  const double next = std::min(next_arrival(), next_cancel());
  if (next == kNever && until == kNever && !state_.empty())
    throw std::logic_error("the policy leaves requests waiting");
  if (next == kNever || next > until) return false;
  clock_.set(std::max(clock_.now(), next));
  drained_ = true;
  return true;
}

// ---- Passes

void Replica::launch(double until) {
  state_.begin(clock_.now());
  policy_.decide(state_, costs_.believed);
  state_.keep_snapshots();
  records_.moved(state_, clock_.now());
  records_.chose(policy_.considered(), clock_.now());
  const Decision& made = state_.decision();
  if (made.idle()) return;
  fly();
  run_.clear();
  if (!mode_.one_by_one && made.pure() && flight_.times.seconds == flight_.times.gpu && policy_.steady(state_))
    fly_on(std::min(until, interruption()));
}

void Replica::fly() {
  const Decision& made = state_.decision();
  flight_.flies = true;
  flight_.times = time_of(costs_.actual, made.kind, state_.load());
  flight_.times.seconds *= std::exchange(drained_, false) ? filling(costs_.actual, state_.load()) : 1.0;
  flight_.end = clock_;
  flight_.end.add(flight_.times.seconds);
  flight_.quiet = flight_.end.now();
  flight_.held[kGpu] = state_.tokens(Home::gpu) + made.decodes;
  flight_.held[kCpu] = state_.tokens(Home::cpu) + static_cast<int64_t>(made.cpu[0].size() + made.cpu[1].size());
  for (const Chunk& chunk : made.prompts) flight_.held[static_cast<size_t>(chunk.home)] += chunk.tokens;
}

// The pass becomes a run of passes: until the first last token, while blocks last, to the first end at `stop` or later.
void Replica::fly_on(double stop) {
  const int64_t most = state_.repeats();
  if (most < 2) return;
  const Work& work = state_.load().half[0];
  run_until(costs_.actual, work.tokens, work.gpu_kv, most, clock_, stop, run_);
  int64_t passes = 0;
  flight_.end = clock_;
  for (const Stretch& stretch : run_) passes += stretch.terms, flight_.end.add(sum(stretch));
  state_.repeat(passes - 1);
  const double end = flight_.end.now(), rest = static_cast<double>(most - passes) * last(run_.back());
  flight_.quiet = std::min(end + rest, std::max(end, next_cancel()));
}

void Replica::land() {
  flight_.flies = false;
  const Decision& made = state_.decision();
  const double begin = clock_.now();
  clock_ = flight_.end;
  if (policy_.learns() && !(made.pure() && policy_.steady(state_)))
    policy_.observe(made.kind, state_.load(), time_of(costs_.believed, made.kind, state_.load()), flight_.times);
  const double host = host_seconds(costs_.actual, made.kind, state_.load(), flight_.times.seconds);
  const Outcome& outcome = state_.commit(clock_.now(), host, costs_.actual);
  for (const Id id : outcome.finished) over_.push_back(records_.request(id));
  if (run_.empty()) {
    count_one();
    if (outcome.even > 0) records_.gaps.add({flight_.times.seconds, 0.0, 1}, outcome.even, false);
  } else {
    count_run();
  }
  records_.passed(outcome, begin, clock_.now(), requests_);
  last_begin_ = run_.empty() ? begin : clock_.now() - last(run_.back());
  if (mode_.check) state_.check();
  records_.occupancy.add(clock_.now(), state_.tokens(Home::gpu), state_.tokens(Home::cpu));
}

void Replica::count_one() {
  Activity& done = records_.activity;
  const Times& times = flight_.times;
  done.busy.seconds += times.seconds, done.busy.gpu += times.gpu;
  done.busy.cpu += times.cpu, done.busy.link += times.link;
  for (size_t home = kGpu; home <= kCpu; ++home)
    done.kv_seconds[home] += static_cast<double>(flight_.held[home]) * times.seconds;
  ++done.passes[static_cast<size_t>(state_.decision().kind)];
}

void Replica::count_run() {
  Activity& done = records_.activity;
  const int64_t requests = state_.decision().decodes;
  int64_t held = flight_.held[kGpu];
  for (const Stretch& stretch : run_) {
    const double seconds = sum(stretch);
    done.busy.seconds += seconds, done.busy.gpu += seconds;
    done.kv_seconds[kGpu] += weighted_sum(stretch, static_cast<double>(held), static_cast<double>(requests));
    done.kv_seconds[kCpu] += static_cast<double>(flight_.held[kCpu]) * seconds;
    done.passes[static_cast<size_t>(Kind::gpu_only)] += stretch.terms;
    held += stretch.terms * requests;
    records_.gaps.add(stretch, requests, false);
  }
  ++done.jumps;
}

}  // namespace helm::scheduling
