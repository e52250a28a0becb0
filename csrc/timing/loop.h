// Loop: the event loop of the clock. Exclusive lanes, a window of unfinished tasks, time between tasks, bandwidth
// shared max-min fairly, work that busy links delay.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <utility>
#include <vector>

namespace helm {

using std::size_t;

// What a running task draws on: (pool, how many times its bytes count there).
using Uses = std::vector<std::pair<int, int>>;

// Traffic that delays a task while it is under way, each kind by that part of its time: the task's speed is at most
// 1 / (1 + the sum over what is under way).
using Slowings = std::vector<std::pair<int, double>>;

// What a task suffers: from `slows` it asks its pools for as much less; `interrupts` leave it a part of the time, in
// which it asks for all it wants.
struct Suffered {
  Slowings slows, interrupts;
};

// Speeds relative to running alone, in (0, 1], of flows that want `rates` (bytes/s) of the pools in `uses`: no flow
// can be raised without lowering one that is not faster. O(flows^2 pools).
std::vector<double> fair_speeds(const std::vector<double>& rates, const std::vector<const Uses*>& uses,
                                const std::vector<double>& capacity);

struct Finished {
  std::vector<int64_t> index;
  std::vector<double> start, end;
};

// All that decides how fast a task runs: its lane, its seconds and bytes/s alone, and numbers of `uses`, `traffic` and
// `slowings`; -1 where it moves nothing, is no traffic, is slowed by nothing.
struct Work {
  int lane;
  double seconds, rate;
  int uses, traffic, slowings;
};

// Tasks are fed in topological order and numbered as they come. A lane is a queue: a task starts when its dependencies
// are done and handed over, and the task before it on its lane; if it waits for another lane, a join after that one.
// Deterministic.
class Loop {
 public:
  explicit Loop(std::vector<double> capacity, bool record) : capacity_(std::move(capacity)), record_(record) {}

  // `kind`: the bit that it sets in `masks` while it works; `join`: seconds after the task before on this lane until
  // one starts that waits for other lanes.
  int add_lane(int kind, double join);
  // Seconds from the end of a task on lane `from` until one on lane `to` may start that waits for it.
  void set_handover(int from, int to, double seconds);
  int add_uses(Uses uses);
  int add_slowings(Slowings slows, Slowings interrupts);
  // What is under way while a task runs: several kinds of traffic.
  int add_traffic(std::vector<int> kinds);

  int add_work(const Work& work);

  // One entry of `works` and `dep_counts` per task; `deps`: numbers of earlier tasks, of all tasks one after the other.
  // Throws std::invalid_argument for a dependency on a task that has not come.
  void feed(const int32_t* works, const int32_t* dep_counts, size_t count, const int64_t* deps, size_t dep_total);

  // Runs until at most `unfinished` tasks are left: all of them for 0. Throws std::logic_error if it cannot go on.
  void run(size_t unfinished);

  size_t unfinished() const { return unfinished_; }
  double now() const { return reached_; }
  double overlap() const { return overlap_; }
  std::vector<double> busy() const;
  // Seconds by the set of kinds of lanes that worked, a bit for each kind.
  const std::map<uint32_t, double>& masks() const { return masks_; }
  // What finished since the last call, when recording.
  Finished finished() { return std::exchange(finished_, {}); }

 private:
  struct Task {
    double start = 0, left = 0, since = 0, speed = 0;
    double most = 1, part = 1;  // speed that busy links leave, and part of the time that interruptions do
    double gap = 0, ready = 0;  // seconds after the task before it; when the last hand-over so far is over
    int work, missing = 0;
    uint32_t version = 0;
    bool done = false;
    int first_user = -1, last_user = -1;  // places among `users_`
  };
  // A task that waits for another, the seconds from that one's end until it may start, and the place of the next that
  // waits for the same.
  struct User {
    int64_t task;
    double handover;
    int next;
  };
  // Unfinished tasks by number, and those that finished after one of them: a ring of 2^n places.
  class Window {
   public:
    int64_t first() const { return first_; }
    int64_t end() const { return end_; }
    bool empty() const { return first_ == end_; }
    Task& at(int64_t index) { return tasks_[static_cast<size_t>(index) & (tasks_.size() - 1)]; }
    const Task& at(int64_t index) const { return tasks_[static_cast<size_t>(index) & (tasks_.size() - 1)]; }
    void push(const Task& task);
    void pop() { ++first_; }

   private:
    std::vector<Task> tasks_;
    int64_t first_ = 0, end_ = 0;
  };
  struct Lane {
    int kind;
    double join;
    int64_t task = -1;
    double busy = 0, ended = 0;
    bool fresh = false, begun = false;  // begun: a task of it was fed
    std::deque<int64_t> waiting;
    std::vector<double> handovers;  // to other lanes
  };
  struct Event {
    double time;
    uint64_t serial;
    int64_t task;
    uint32_t version;
    bool operator>(const Event& other) const { return time != other.time ? time > other.time : serial > other.serial; }
  };

  Task& at(int64_t index) { return window_.at(index); }
  const Work& work_of(const Task& task) const { return works_[static_cast<size_t>(task.work)]; }
  void add(int work, const int64_t* deps, int count);
  void await(Task& awaited, int64_t task, double handover);
  double handover(int from, int to) const;
  void touch(int lane);
  void start_ready();
  void settle();
  void start(int lane);
  void flow(int traffic, int change);
  void know(int kind);
  void delay();
  double left_by(const Slowings& slowings) const;
  std::vector<double> shared(const std::vector<double>& rates, const std::vector<const Uses*>& uses) const;
  void complete(int64_t index);
  void step();
  void draw(const Task& task, double speed);
  bool contended() const;
  void balance();
  void run_at(int64_t index, double speed);

  std::vector<double> capacity_;
  bool record_;
  std::vector<Lane> lanes_;
  std::vector<Uses> uses_;
  std::vector<Suffered> slowings_;
  std::vector<Work> works_;
  std::vector<int32_t> lane_of_;  // by task, of all that came
  std::vector<std::vector<int>> traffic_;
  std::vector<int> under_way_;  // tasks of each kind of traffic that run
  std::vector<int> fresh_;
  Window window_;
  std::vector<User> users_;
  int free_user_ = -1;  // place of the first of those that are free
  size_t unfinished_ = 0, working_ = 0;
  std::vector<int64_t> flowing_, delayed_, started_;
  std::vector<double> wanted_;
  bool shared_ = false, flowed_ = false, traffic_changed_ = false;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  uint64_t serial_ = 0;
  double now_ = 0, overlap_ = 0, reached_ = 0;  // `reached_`: the latest end
  std::vector<int> active_;
  uint32_t mask_ = 0;
  std::map<uint32_t, double> masks_;
  Finished finished_;
};

}  // namespace helm
