// Policy: what the next pass does. One implementation, asked by the simulator and by the executor.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "scheduling/schedule.h"
#include "scheduling/state.h"

namespace helm::scheduling {

// By name; scheduler/policies.py has checked names, types and ranges and filled in defaults.
class Options {
 public:
  using Value = std::variant<bool, int64_t, double, std::string>;
  explicit Options(std::map<std::string, Value> values) : values_(std::move(values)) {}

  // Throw std::invalid_argument where there is no such option, or none of that type.
  bool flag(const std::string& name) const;
  int64_t whole(const std::string& name) const;
  double number(const std::string& name) const;  // whole numbers too
  const std::string& text(const std::string& name) const;

 private:
  const Value& at(const std::string& name) const;
  std::map<std::string, Value> values_;
};

// Of the options `cohorts` and `order`.
Pool pool_of(const Options& options);

class Policy {
 public:
  virtual ~Policy() = default;

  // Where requests may be while they decode: one that fits nowhere is rejected when it arrives.
  virtual Homes homes() const = 0;

  // Cohorts that may be under way at a time, and which of them the host does first.
  virtual Pool pool() const { return {}; }

  // Makes the next pass, by the methods of `state`: first who leaves or moves (preempt, swap_out, swap_in), then
  // decode_on_gpu, then prompts, decodes on the host and the kind. Doing nothing means waiting for an arrival; with
  // anything running, something must go on.
  virtual void decide(State& state, const Cost& believed) = 0;

  // What the last decide chose from, if it compared passes, and first the one it made; valid until the next one.
  virtual std::vector<const Schedule*> considered() const { return {}; }

  // After a pass of nothing but decodes on the accelerator: true if every further pass is the same until one of them
  // ends, a pass finds too few free blocks, a request is cancelled, or one arrives that is not behind another in
  // the queue. The engine then goes there at once.
  virtual bool steady(const State&) const { return false; }

  // Whether it wants to know what passes took.
  virtual bool learns() const { return true; }
  // A pass took `measured`; its costs said `predicted`. It is not told of the passes that steady() speaks of.
  virtual void observe(Kind, const Load&, const Times& predicted, const Times& measured) {
    (void)predicted, (void)measured;
  }
};

// Makes the policy of one more replica.
using PolicyMaker = std::function<std::unique_ptr<Policy>()>;

// By the names of scheduler/policies.py. Throws std::invalid_argument for a name it does not know.
std::unique_ptr<Policy> make_policy(const std::string& name, const Options& options);

}  // namespace helm::scheduling
