// Cohorts: requests whose tokens are on their way, one layer of attention on the host after the other (APEX-15..19),
// and the pool of the host's tasks: of every cohort that of the layer it has reached (APEX-40).
#pragma once
#include <cstdint>
#include <vector>

#include "scheduling/decision.h"

namespace helm::scheduling {

// Which of its tasks the host does first: of the last layer, which are nearest to their tokens; of the first; or those
// that came first. What it has begun it ends.
enum class Order : uint8_t { last, first, arrival };

// Most cohorts at a time, each of which needs memory for what is kept of its rows between passes.
struct Pool {
  int64_t cohorts = 1;
  Order order = Order::last;
};

// Requests that began a token together.
struct Cohort {
  int64_t number = 0;  // from 1 on, in the order in which they begin
  std::vector<Id> members;
  Work work;           // of one layer, all members
  int layers = 0;      // attention done
  double left = 0;     // seconds of the host for the layer under way; 0: the next may begin
  bool begun = false;  // the host is at it
  bool hops = false;   // it comes to the next stage of a pipeline with the next slot, and the host cannot begin before
  int64_t since = 0;   // the pass with which that layer began

  bool ready() const { return left <= 0; }
  // Whether the next stage is the one after the last of `all` layers, which brings their tokens.
  bool ends(int all) const { return ready() && layers == all; }
  // Its part in a deferred pass, none while the host is not done: a linear stage and the attention that follows, but
  // after the last layer's stage come its tokens. So L + 1 passes make one (E-APEX-05, E-APEX-11).
  void join(Load& load, int all) const;
};

class Cohorts {
 public:
  explicit Cohorts(Pool pool) : pool_(pool) {}

  const std::vector<Cohort>& all() const { return all_; }  // in the order in which they began
  bool empty() const { return all_.empty(); }
  bool full() const { return static_cast<int64_t>(all_.size()) >= pool_.cohorts; }
  const Cohort& operator[](int64_t number) const { return all_[place(number)]; }
  int64_t members() const;
  // Those nearest to their tokens first.
  std::vector<const Cohort*> furthest() const;

  // A new one, without members yet.
  int64_t begin();
  void enter(int64_t number, Id id, int64_t cached);
  // The last one to leave ends it.
  void leave(int64_t number, Id id, int64_t cached);

  // What all of them add to a deferred pass: in each slot of a round, as far as the host is ready by these costs.
  void join(Load& load, const Cost& cost) const;
  // A pass of `seconds` is over: those that were ready went on with it if it was `deferred`, in each of its slots, and
  // the host worked through it, whatever its kind. The numbers of those that it brought the stage after the last layer.
  std::vector<int64_t> pass(double seconds, bool deferred, const Cost& cost);

 private:
  size_t place(int64_t number) const;
  void slot(double seconds, bool deferred, const Cost& cost, std::vector<int64_t>& ended);
  std::vector<Cohort*> tasks();
  bool before(const Cohort& one, const Cohort& other) const;

  Pool pool_;
  std::vector<Cohort> all_;
  int64_t last_ = 0, passes_ = 0;
};

}  // namespace helm::scheduling
