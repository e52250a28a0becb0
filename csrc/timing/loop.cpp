#include "timing/loop.h"

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

int Loop::add_lane(int kind, double join) {
  if (kind < 0 || kind > 31 || !(join >= 0.0))
    throw std::invalid_argument("a lane has a bit below 32, a join 0 s or more");
  Lane lane{};
  lane.kind = kind, lane.join = join;
  lanes_.push_back(std::move(lane));
  if (active_.size() <= static_cast<size_t>(kind)) active_.resize(static_cast<size_t>(kind) + 1, 0);
  return static_cast<int>(lanes_.size()) - 1;
}

void Loop::set_handover(int from, int to, double seconds) {
  const int count = static_cast<int>(lanes_.size());
  if (from < 0 || from >= count || to < 0 || to >= count) throw std::invalid_argument("no such lane");
  if (!(seconds >= 0.0)) throw std::invalid_argument("a hand-over takes no less than 0 s");
  std::vector<double>& handovers = lanes_[static_cast<size_t>(from)].handovers;
  if (handovers.size() <= static_cast<size_t>(to)) handovers.resize(static_cast<size_t>(to) + 1, 0.0);
  handovers[static_cast<size_t>(to)] = seconds;
}

double Loop::handover(int from, int to) const {
  const std::vector<double>& handovers = lanes_[static_cast<size_t>(from)].handovers;
  return static_cast<size_t>(to) < handovers.size() ? handovers[static_cast<size_t>(to)] : 0.0;
}

int Loop::add_uses(Uses uses) {
  for (const auto& [pool, times] : uses)
    if (pool < 0 || static_cast<size_t>(pool) >= capacity_.size() || times < 1)
      throw std::invalid_argument("no such pool");
  uses_.push_back(std::move(uses));
  return static_cast<int>(uses_.size()) - 1;
}

int Loop::add_slowings(Slowings slows, Slowings interrupts) {
  for (const Slowings& each : {slows, interrupts})
    for (const auto& [kind, extra] : each) {
      if (kind < 0 || !(extra >= 0.0)) throw std::invalid_argument("traffic delays by a part of the time, 0 or more");
      know(kind);
    }
  slowings_.push_back({std::move(slows), std::move(interrupts)});
  return static_cast<int>(slowings_.size()) - 1;
}

int Loop::add_traffic(std::vector<int> kinds) {
  for (const int kind : kinds) {
    if (kind < 0) throw std::invalid_argument("no such traffic");
    know(kind);
  }
  traffic_.push_back(std::move(kinds));
  return static_cast<int>(traffic_.size()) - 1;
}

void Loop::know(int kind) {
  if (under_way_.size() <= static_cast<size_t>(kind)) under_way_.resize(static_cast<size_t>(kind) + 1, 0);
}

int Loop::add_work(const Work& work) {
  if (work.lane < 0 || static_cast<size_t>(work.lane) >= lanes_.size()) throw std::invalid_argument("no such lane");
  if (!(work.seconds >= 0.0)) throw std::invalid_argument("work takes no less than 0 s");
  if (work.uses >= static_cast<int>(uses_.size())) throw std::invalid_argument("no such uses");
  if (work.slowings >= static_cast<int>(slowings_.size())) throw std::invalid_argument("no such slowings");
  if (work.traffic >= static_cast<int>(traffic_.size())) throw std::invalid_argument("no such traffic");
  works_.push_back(work);
  return static_cast<int>(works_.size()) - 1;
}

void Loop::feed(const int32_t* works, const int32_t* dep_counts, size_t count, const int64_t* deps, size_t dep_total) {
  wanted_.resize(capacity_.size(), 0.0);
  size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto own = static_cast<size_t>(dep_counts[i]);
    if (dep_counts[i] < 0 || next + own > dep_total) throw std::invalid_argument("too few dependencies");
    add(works[i], deps + next, dep_counts[i]);
    next += own;
  }
}

void Loop::Window::push(const Task& task) {
  const auto count = static_cast<size_t>(end_ - first_);
  if (count == tasks_.size()) {
    std::vector<Task> larger(std::max<size_t>(64, 2 * count));
    for (int64_t index = first_; index < end_; ++index)
      larger[static_cast<size_t>(index) & (larger.size() - 1)] = at(index);
    tasks_ = std::move(larger);
  }
  at(end_++) = task;
}

// Users of a task keep the order in which they came.
void Loop::await(Task& awaited, int64_t task, double handover) {
  int place = free_user_;
  if (place >= 0) {
    free_user_ = users_[static_cast<size_t>(place)].next;
  } else {
    place = static_cast<int>(users_.size());
    users_.emplace_back();
  }
  users_[static_cast<size_t>(place)] = {task, handover, -1};
  (awaited.first_user < 0 ? awaited.first_user : users_[static_cast<size_t>(awaited.last_user)].next) = place;
  awaited.last_user = place;
}

void Loop::add(int work, const int64_t* deps, int count) {
  if (work < 0 || static_cast<size_t>(work) >= works_.size()) throw std::invalid_argument("no such work");
  const int64_t index = window_.end();
  const int lane = works_[static_cast<size_t>(work)].lane;
  Lane& l = lanes_[static_cast<size_t>(lane)];
  Task task{};
  task.work = work;
  for (int d = 0; d < count; ++d) {
    if (deps[d] < 0 || deps[d] >= index) throw std::invalid_argument("the task graph has a cycle");
    const int from = lane_of_[static_cast<size_t>(deps[d])];
    const double seconds = from == lane ? 0.0 : handover(from, lane);
    if (from != lane && l.begun) task.gap = l.join;
    if (deps[d] < window_.first() || at(deps[d]).done) {
      if (seconds > 0.0) task.ready = std::max(task.ready, now_ + seconds);
      continue;
    }
    await(at(deps[d]), index, seconds);
    ++task.missing;
  }
  l.begun = true;
  l.waiting.push_back(index);
  lane_of_.push_back(lane);
  if (task.missing == 0) touch(lane);
  window_.push(task);
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
    if (l.task >= 0 || l.waiting.empty() || at(l.waiting.front()).missing > 0) continue;
    const Task& next = at(l.waiting.front());
    const double from = std::max(next.ready, l.ended + next.gap);
    if (from > now_)
      events_.push({from, serial_++, l.waiting.front(), 0});
    else
      start(lane);
  }
  fresh_.clear();
  settle();
}

// The speeds of tasks that began, and of those that what began or ended lets run faster or slower.
void Loop::settle() {
  if (traffic_changed_) delay();
  const bool fair = shared_ || contended();
  for (const int64_t index : started_)
    if (!fair || work_of(at(index)).uses < 0) run_at(index, at(index).most * at(index).part);
  if (traffic_changed_)
    for (const int64_t index : delayed_)
      if (!fair || work_of(at(index)).uses < 0) run_at(index, at(index).most * at(index).part);
  if (fair && (flowed_ || traffic_changed_ || !started_.empty())) balance();
  flowed_ = traffic_changed_ = false;
}

void Loop::start(int lane) {
  Lane& l = lanes_[static_cast<size_t>(lane)];
  l.task = l.waiting.front();
  l.waiting.pop_front();
  Task& task = at(l.task);
  task.start = task.since = now_;
  task.left = work_of(task).seconds;
  ++working_;
  if (active_[static_cast<size_t>(l.kind)]++ == 0) mask_ |= 1u << l.kind;
  if (work_of(task).slowings >= 0) {
    const Suffered& suffered = slowings_[static_cast<size_t>(work_of(task).slowings)];
    task.most = left_by(suffered.slows), task.part = left_by(suffered.interrupts);
    delayed_.push_back(l.task);
  }
  if (work_of(task).uses >= 0) {
    flowing_.push_back(l.task);
    draw(task, task.most);
  }
  flow(work_of(task).traffic, 1);
  started_.push_back(l.task);
}

void Loop::flow(int traffic, int change) {
  if (traffic < 0) return;
  for (const int kind : traffic_[static_cast<size_t>(traffic)]) {
    int& running = under_way_[static_cast<size_t>(kind)];
    running += change;
    if (running == (change > 0 ? 1 : 0)) traffic_changed_ = true;
  }
}

double Loop::left_by(const Slowings& slowings) const {
  double extra = 0.0;
  for (const auto& [kind, part] : slowings)
    if (under_way_[static_cast<size_t>(kind)] > 0) extra += part;
  return 1.0 / (1.0 + extra);
}

// What busy links leave of the speed of running tasks, and of their time.
void Loop::delay() {
  for (const int64_t index : delayed_) {
    Task& task = at(index);
    const Suffered& suffered = slowings_[static_cast<size_t>(work_of(task).slowings)];
    const double now = left_by(suffered.slows);
    if (work_of(task).uses >= 0) draw(task, now - task.most);
    task.most = now, task.part = left_by(suffered.interrupts);
  }
}

// All events of the next time: ends of tasks, and (version 0) moments from which one may start.
void Loop::step() {
  const double time = events_.top().time;
  if (time > now_) {
    masks_[mask_] += time - now_;
    if (working_ > 1) overlap_ += time - now_;
    now_ = time;
  }
  while (!events_.empty() && events_.top().time == now_) {
    const Event event = events_.top();
    events_.pop();
    if (event.task < window_.first() || at(event.task).done || at(event.task).version != event.version) continue;
    if (event.version == 0)
      touch(work_of(at(event.task)).lane);
    else
      complete(event.task);
  }
  while (!window_.empty() && at(window_.first()).done) window_.pop();
}

void Loop::complete(int64_t index) {
  Task& task = at(index);
  Lane& lane = lanes_[static_cast<size_t>(work_of(task).lane)];
  task.done = true;
  lane.task = -1;
  lane.busy += now_ - task.start;
  lane.ended = reached_ = now_;
  touch(work_of(task).lane);
  --working_;
  --unfinished_;
  if (--active_[static_cast<size_t>(lane.kind)] == 0) mask_ &= ~(1u << lane.kind);
  if (work_of(task).uses >= 0) {
    flowing_.erase(std::find(flowing_.begin(), flowing_.end(), index));
    draw(task, -task.most);
    flowed_ = true;
    if (flowing_.empty()) std::fill(wanted_.begin(), wanted_.end(), 0.0);
  }
  if (work_of(task).slowings >= 0) delayed_.erase(std::find(delayed_.begin(), delayed_.end(), index));
  flow(work_of(task).traffic, -1);
  for (int place = task.first_user; place >= 0;) {
    User& user = users_[static_cast<size_t>(place)];
    Task& next = at(user.task);
    if (user.handover > 0.0) next.ready = std::max(next.ready, now_ + user.handover);
    if (--next.missing == 0) touch(work_of(next).lane);
    const int after = user.next;
    user.next = free_user_, free_user_ = place;
    place = after;
  }
  if (record_) {
    finished_.index.push_back(index);
    finished_.start.push_back(task.start);
    finished_.end.push_back(now_);
  }
}

void Loop::draw(const Task& task, double speed) {
  for (const auto& [pool, times] : uses_[static_cast<size_t>(work_of(task).uses)])
    wanted_[static_cast<size_t>(pool)] += speed * work_of(task).rate * times;
}

bool Loop::contended() const {
  for (size_t p = 0; p < capacity_.size(); ++p)
    if (wanted_[p] > capacity_[p] * (1.0 + kRounding)) return true;
  return false;
}

// Fair speeds of flows; each asks for what it wants alone, less what busy links cost it.
void Loop::balance() {
  shared_ = contended();
  std::vector<double> speeds(flowing_.size());
  if (shared_) {
    std::vector<double> rates;
    std::vector<const Uses*> uses;
    for (const int64_t index : flowing_) {
      rates.push_back(work_of(at(index)).rate * at(index).most);
      uses.push_back(&uses_[static_cast<size_t>(work_of(at(index)).uses)]);
    }
    speeds = shared(rates, uses);
  } else {
    for (size_t i = 0; i < flowing_.size(); ++i) speeds[i] = at(flowing_[i]).part;
  }
  for (size_t i = 0; i < flowing_.size(); ++i) run_at(flowing_[i], speeds[i] * at(flowing_[i]).most);
}

// Interrupted flows share as if they always ran, and have their part of that; the others share what is left.
std::vector<double> Loop::shared(const std::vector<double>& rates, const std::vector<const Uses*>& uses) const {
  std::vector<double> speeds = fair_speeds(rates, uses, capacity_), left = capacity_, others;
  std::vector<size_t> places;
  std::vector<const Uses*> used;
  for (size_t i = 0; i < rates.size(); ++i) {
    const double part = window_.at(flowing_[i]).part;
    if (part == 1.0) {
      places.push_back(i), others.push_back(rates[i]), used.push_back(uses[i]);
      continue;
    }
    speeds[i] *= part;
    for (const auto& [pool, times] : *uses[i]) {
      double& rest = left[static_cast<size_t>(pool)];
      rest = std::max(0.0, rest - rates[i] * speeds[i] * times);
    }
  }
  if (places.size() == rates.size()) return speeds;
  const std::vector<double> again = fair_speeds(others, used, left);
  for (size_t i = 0; i < places.size(); ++i) speeds[places[i]] = again[i];
  return speeds;
}

// A task whose speed changes gets a new completion event; the old one no longer counts.
void Loop::run_at(int64_t index, double speed) {
  Task& task = at(index);
  if (speed == task.speed) return;
  task.left = std::max(0.0, task.left - task.speed * (now_ - task.since));
  task.since = now_;
  task.speed = speed;
  events_.push({now_ + task.left / speed, serial_++, index, ++task.version});
}

std::vector<double> Loop::busy() const {
  std::vector<double> found;
  for (const Lane& lane : lanes_) found.push_back(lane.busy);
  return found;
}

}  // namespace helm
