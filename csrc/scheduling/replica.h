// Replica: the event loop of one replica.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "scheduling/clock.h"
#include "scheduling/forward.h"
#include "scheduling/policy.h"
#include "scheduling/records.h"
#include "scheduling/requests.h"

namespace helm::scheduling {

// What passes take (`actual`), and what the policy believes they take.
struct Costs {
  Cost actual, believed;
};

struct Mode {
  bool one_by_one;  // no pass is taken in closed form
  bool check;       // State::check after every pass
};

class Replica {
 public:
  // The arguments outlive the replica.
  Replica(const Requests& requests, const Costs& costs, const Limits& limits, Policy& policy, Records& records,
          Mode mode);

  // A request that will arrive; in order of arrival. False: it can never run, and is rejected.
  bool expect(int64_t request);
  // Until all that has been expected is over, or the first moment at or after `until` when no pass is under way. Passes
  // that end later are left under way: nothing that they bring is seen before. A run that is lost goes no further.
  void run(double until);

  // Who has to know of every end takes single steps instead: passes under way end at `landing`, or the next one begins
  // at `launching` (seconds; infinity where there is none), as part of a run of passes that is over by the first end at
  // `until` or later. A step in which requests are cancelled begins none.
  double landing() const;
  double launching() const;
  void step(double until);
  // Seconds before which no request ends here, unless one arrives that has not been expected yet.
  double quiet() const;
  double now() const { return clock_.now(); }
  bool lost() const { return records_.lost(); }

  // Requests that have been expected and are not over.
  int64_t outstanding() const { return static_cast<int64_t>(inbox_.size() - over_.size()); }
  // Those that are over, in order; not those that were rejected.
  const std::vector<int64_t>& over() const { return over_; }
  const State& state() const { return state_; }

 private:
  using Cancel = std::pair<double, int64_t>;  // seconds, request

  // Passes under way: one, or a run of decodes on the accelerator.
  struct Flight {
    bool flies = false;
    Clock end;
    double quiet = 0;               // seconds before which no request ends, unless one arrives
    Times times;                    // of the first pass
    std::array<int64_t, 3> held{};  // KV tokens by home, with those being appended, in the first pass
  };

  // Until when arrivals are seen by who decides the next pass.
  double seen() const;
  void deliver();
  void arrive(int64_t request);
  void cancel(int64_t request);
  double next_arrival() const;
  double next_cancel() const;
  // When a run of equal passes has to look up: something is cancelled, or arrives and may begin.
  double interruption() const;
  bool wait(double until);
  void launch(double until);
  void fly();
  void fly_on(double stop);
  void land();
  void count_one();
  void count_run();

  const Requests& requests_;
  const Costs& costs_;
  Policy& policy_;
  Records& records_;
  Mode mode_;
  bool one_priority_;
  State state_;
  Clock clock_;
  Flight flight_;
  double last_begin_ = 0;     // when the last pass that has ended began
  bool drained_ = true;       // nothing is in the pipeline
  bool waits_ = true;         // no pass may begin before something arrives or is cancelled
  std::vector<Stretch> run_;  // of a flight of several passes; empty for one
  std::vector<int64_t> inbox_;
  size_t delivered_ = 0;
  std::vector<int64_t> over_;
  std::priority_queue<Cancel, std::vector<Cancel>, std::greater<>> cancels_;
};

}  // namespace helm::scheduling
