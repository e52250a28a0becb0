#include "loop.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace helm {
namespace {

constexpr double kFull = 1e-12;
constexpr double kRounding = 1e-9;  // of sums that tasks enter and leave

// One filling of the pools: the common rate at which the first of them is full.
class Filling {
 public:
  Filling(const std::vector<double>& rates, const std::vector<const Uses*>& uses, std::vector<double> left)
      : rates_(rates), uses_(uses), left_(std::move(left)), active_(rates.size(), true), result_(rates.size(), 1.0) {}

  std::vector<double> run() {
    while (overcommitted()) limit(level());
    return std::move(result_);
  }

 private:
  bool overcommitted() const {
    std::vector<double> wanted(left_.size(), 0.0);
    for (size_t i = 0; i < rates_.size(); ++i)
      if (active_[i])
        for (const auto& [pool, times] : *uses_[i]) wanted[static_cast<size_t>(pool)] += rates_[i] * times;
    for (size_t p = 0; p < left_.size(); ++p)
      if (wanted[p] > 0 && wanted[p] > left_[p] * (1.0 + kFull)) return true;
    return false;
  }

  std::pair<double, int> level() const {
    std::vector<int> users(left_.size(), 0);
    for (size_t i = 0; i < rates_.size(); ++i)
      if (active_[i])
        for (const auto& [pool, times] : *uses_[i]) users[static_cast<size_t>(pool)] += times;
    std::pair<double, int> best{std::numeric_limits<double>::infinity(), -1};
    for (size_t p = 0; p < left_.size(); ++p)
      if (users[p]) best = std::min(best, {std::max(left_[p], 0.0) / users[p], static_cast<int>(p)});
    return best;
  }

  // Flows that want no more than the level get what they want; if there are none, those in the full pool get it.
  void limit(const std::pair<double, int>& level) {
    std::vector<size_t> limited;
    for (size_t i = 0; i < rates_.size(); ++i)
      if (active_[i] && rates_[i] <= level.first) limited.push_back(i);
    if (limited.empty()) limited = in_pool(level.second);
    for (const size_t i : limited) settle(i, std::min(rates_[i], level.first));
  }

  std::vector<size_t> in_pool(int pool) const {
    std::vector<size_t> found;
    for (size_t i = 0; i < rates_.size(); ++i)
      if (active_[i] &&
          std::any_of(uses_[i]->begin(), uses_[i]->end(), [&](const auto& use) { return use.first == pool; }))
        found.push_back(i);
    return found;
  }

  void settle(size_t i, double rate) {
    active_[i] = false;
    result_[i] = rate / rates_[i];
    for (const auto& [pool, times] : *uses_[i]) left_[static_cast<size_t>(pool)] -= rate * times;
  }

  const std::vector<double>& rates_;
  const std::vector<const Uses*>& uses_;
  std::vector<double> left_;
  std::vector<bool> active_;
  std::vector<double> result_;
};

}  // namespace

std::vector<double> fair_speeds(const std::vector<double>& rates, const std::vector<const Uses*>& uses,
                                const std::vector<double>& capacity) {
  return Filling(rates, uses, capacity).run();
}

int Loop::add_lane(int kind) {
  lanes_.push_back(Lane{kind, -1, 0.0, false, {}});
  if (active_.size() <= static_cast<size_t>(kind)) active_.resize(static_cast<size_t>(kind) + 1, 0);
  return static_cast<int>(lanes_.size()) - 1;
}

int Loop::add_uses(Uses uses) {
  for (const auto& [pool, times] : uses)
    if (pool < 0 || static_cast<size_t>(pool) >= capacity_.size() || times < 1)
      throw std::invalid_argument("no such pool");
  uses_.push_back(std::move(uses));
  return static_cast<int>(uses_.size()) - 1;
}

void Loop::feed(const std::vector<int>& lanes, const std::vector<double>& seconds, const std::vector<double>& rates,
                const std::vector<int>& uses, const std::vector<int>& dep_counts, const std::vector<int64_t>& deps) {
  const size_t count = lanes.size();
  if (seconds.size() != count || rates.size() != count || uses.size() != count || dep_counts.size() != count)
    throw std::invalid_argument("lists of different lengths");
  wanted_.resize(capacity_.size(), 0.0);
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto own = static_cast<size_t>(dep_counts[i]);
    if (next + own > deps.size()) throw std::invalid_argument("too few dependencies");
    add(lanes[i], seconds[i], rates[i], uses[i], deps.data() + next, dep_counts[i]);
    next += own;
  }
}

void Loop::add(int lane, double seconds, double rate, int uses, const int64_t* deps, int count) {
  const int64_t index = first_ + static_cast<int64_t>(window_.size());
  if (lane < 0 || static_cast<size_t>(lane) >= lanes_.size()) throw std::invalid_argument("no such lane");
  if (uses >= static_cast<int>(uses_.size())) throw std::invalid_argument("no such uses");
  Task task{seconds, rate, 0, 0, 0, 0, lane, uses, 0, 0, false, {}};
  for (int d = 0; d < count; ++d) {
    if (deps[d] < 0 || deps[d] >= index) throw std::invalid_argument("the task graph has a cycle");
    if (deps[d] < first_ || at(deps[d]).done) continue;
    at(deps[d]).users.push_back(index);
    ++task.missing;
  }
  if (task.missing == 0) {
    lanes_[static_cast<size_t>(lane)].ready.push(index);
    touch(lane);
  }
  window_.push_back(std::move(task));
  ++unfinished_;
}

void Loop::touch(int lane) {
  Lane& l = lanes_[static_cast<size_t>(lane)];
  if (!l.fresh) fresh_.push_back(lane);
  l.fresh = true;
}

void Loop::run(size_t unfinished) {
  start_ready();
  while (unfinished_ > unfinished) {
    if (events_.empty()) throw std::logic_error("the task graph has a cycle");
    step();
    start_ready();
  }
}

void Loop::start_ready() {
  started_.clear();
  for (const int lane : fresh_) {
    Lane& l = lanes_[static_cast<size_t>(lane)];
    l.fresh = false;
    if (l.task < 0 && !l.ready.empty()) start(lane);
  }
  fresh_.clear();
  if (started_.empty()) return;
  const bool share = shared_ || contended();
  for (const int64_t index : started_) {
    if (share && at(index).uses >= 0) continue;
    at(index).speed = 1.0;
    schedule(index);
  }
  if (share) balance();
}

void Loop::start(int lane) {
  Lane& l = lanes_[static_cast<size_t>(lane)];
  l.task = l.ready.top();
  l.ready.pop();
  Task& task = at(l.task);
  task.start = task.since = now_;
  task.left = task.seconds;
  ++working_;
  if (active_[static_cast<size_t>(l.kind)]++ == 0) mask_ |= 1u << l.kind;
  if (task.uses >= 0) {
    flowing_.push_back(l.task);
    draw(task, 1.0);
  }
  started_.push_back(l.task);
}

// All events of the next time.
void Loop::step() {
  const double time = events_.top().time;
  if (time > now_) {
    masks_[mask_] += time - now_;
    if (working_ > 1) overlap_ += time - now_;
    now_ = time;
  }
  bool flowed = false;
  while (!events_.empty() && events_.top().time == now_) {
    const Event event = events_.top();
    events_.pop();
    if (event.task < first_ || at(event.task).done || at(event.task).version != event.version) continue;
    flowed = flowed || at(event.task).uses >= 0;
    complete(event.task);
  }
  if (flowed && shared_) balance();
  while (!window_.empty() && window_.front().done) {
    window_.pop_front();
    ++first_;
  }
}

void Loop::complete(int64_t index) {
  Task& task = at(index);
  Lane& lane = lanes_[static_cast<size_t>(task.lane)];
  task.done = true;
  lane.task = -1;
  lane.busy += now_ - task.start;
  touch(task.lane);
  --working_;
  --unfinished_;
  if (--active_[static_cast<size_t>(lane.kind)] == 0) mask_ &= ~(1u << lane.kind);
  if (task.uses >= 0) {
    flowing_.erase(std::find(flowing_.begin(), flowing_.end(), index));
    draw(task, -1.0);
    if (flowing_.empty()) std::fill(wanted_.begin(), wanted_.end(), 0.0);
  }
  for (const int64_t user : task.users) {
    if (--at(user).missing > 0) continue;
    lanes_[static_cast<size_t>(at(user).lane)].ready.push(user);
    touch(at(user).lane);
  }
  task.users = {};
  if (record_) {
    finished_.index.push_back(index);
    finished_.start.push_back(task.start);
    finished_.end.push_back(now_);
  }
}

void Loop::draw(const Task& task, double sign) {
  for (const auto& [pool, times] : uses_[static_cast<size_t>(task.uses)])
    wanted_[static_cast<size_t>(pool)] += sign * task.rate * times;
}

bool Loop::contended() const {
  for (size_t p = 0; p < capacity_.size(); ++p)
    if (wanted_[p] > capacity_[p] * (1.0 + kRounding)) return true;
  return false;
}

// Flows whose speed changes get a new completion event; the old one no longer counts.
void Loop::balance() {
  shared_ = contended();
  std::vector<double> speeds(flowing_.size(), 1.0);
  if (shared_) {
    std::vector<double> rates;
    std::vector<const Uses*> uses;
    for (const int64_t index : flowing_) {
      rates.push_back(at(index).rate);
      uses.push_back(&uses_[static_cast<size_t>(at(index).uses)]);
    }
    speeds = fair_speeds(rates, uses, capacity_);
  }
  for (size_t i = 0; i < flowing_.size(); ++i) {
    Task& task = at(flowing_[i]);
    if (speeds[i] == task.speed) continue;
    task.left = std::max(0.0, task.left - task.speed * (now_ - task.since));
    task.since = now_;
    task.speed = speeds[i];
    ++task.version;
    schedule(flowing_[i]);
  }
}

void Loop::schedule(int64_t index) {
  const Task& task = at(index);
  events_.push({now_ + task.left / task.speed, serial_++, index, task.version});
}

std::vector<double> Loop::busy() const {
  std::vector<double> found;
  for (const Lane& lane : lanes_) found.push_back(lane.busy);
  return found;
}

}  // namespace helm
