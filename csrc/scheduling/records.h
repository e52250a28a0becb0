// Records: what becomes of requests, and how busy a replica is while they are served.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "scheduling/line.h"
#include "scheduling/requests.h"
#include "scheduling/schedule.h"
#include "scheduling/state.h"
#include "scheduling/target.h"

namespace helm::scheduling {

// As schemas/served_table.py has them.
enum class Fate : uint8_t { finished, cancelled, rejected, failed, unknown };

// One row a request; times are nan until they come.
struct Served {
  Served(const Requests& requests, const Target& target);
  // More requests have missed the target than may.
  bool lost() const { return missed > target.may_miss; }

  Target target;
  int64_t missed = 0;
  std::vector<double> arrival, started, first_token, finish;
  std::vector<int32_t> produced, cpu_tokens, preemptions, reused, replica;
  std::vector<uint8_t> fate;
};

// Seconds between tokens of a request (ITL), as runs: gap i of a run is first + i * step, and `weight` requests had it.
struct Gaps {
  std::vector<double> first, step;
  std::vector<int32_t> steps, weight;
  std::vector<uint8_t> on_cpu;

  void add(const Stretch& run, int64_t weight, bool on_cpu);
  // One gap of one request; merged with the run before if that is the same gap.
  void add(double gap, bool on_cpu);
};

enum class Happening : uint8_t {
  started,
  first_token,
  swapped_out,
  swapped_in,
  preempted,
  finished,
  cancelled,
  rejected
};

struct Event {
  double time;
  Happening what;
  int64_t request;
};

// A pass that a policy could have made, as it saw it; `made`: it did.
struct Choice {
  double time;
  Kind kind;
  bool made;
  double advance, seconds;             // x and T
  std::array<double, 2> hiding, host;  // pipelined: seconds of one layer by half
};

// What one replica did.
struct Activity {
  Times busy;                               // seconds: passes, and by side
  std::array<int64_t, 4> passes{};          // by kind
  int64_t jumps = 0;                        // runs of passes taken in closed form
  std::array<double, 3> kv_seconds{};       // by home: integral over time of the KV tokens held
  int64_t swapped_out = 0, swapped_in = 0;  // KV tokens
};

// KV tokens held over time: samples, thinned out so that their number stays below `kMost` whatever the run takes.
struct Occupancy {
  static constexpr size_t kMost = 4096;
  std::vector<double> at;
  std::vector<int64_t> gpu, cpu;
  double apart = 0;  // least seconds between samples

  void add(double now, int64_t on_gpu, int64_t on_cpu);
};

// Writes the rows of the requests of one replica.
class Records {
 public:
  Records(Served& served, int64_t replica, bool log) : served_(served), replica_(replica), log_(log) {}

  // The request that is number `id` here.
  void arrived(Id id, int64_t request);
  void rejected(int64_t request, double arrival);
  // `left`: when it was to be cancelled.
  void cancelled(Id id, int64_t produced, double left);
  // A pass that begins now moves and drops requests.
  void moved(const State& state, double now);
  // What its policy chose from, the first of them.
  void chose(const std::vector<const Schedule*>& schedules, double now);
  void passed(const Outcome& outcome, double begin, double end, const Requests& requests);
  // The number here of a request that has arrived: numbers go up with requests.
  Id number(int64_t request) const;
  // The run is lost: what is served from now on does not matter.
  bool lost() const { return served_.lost(); }
  int64_t request(Id id) const { return request_[static_cast<size_t>(id)]; }
  const std::vector<Event>& events() const { return events_; }
  const std::vector<Choice>& choices() const { return choices_; }

  Activity activity;
  Occupancy occupancy;
  Gaps gaps;

 private:
  void log(double time, Happening what, int64_t request);
  void finished(Id id, double now, int64_t output);

  Served& served_;
  int64_t replica_;
  bool log_;
  std::vector<int32_t> request_;  // by number here
  std::vector<Event> events_;
  std::vector<Choice> choices_;
};

}  // namespace helm::scheduling
