// Hybrid: what policies that use the host's attention have in common: caches move, prompts are found, and one of
// several schedules becomes the pass.
#pragma once
#include <vector>

#include "scheduling/policy.h"
#include "scheduling/schedules.h"

namespace helm::scheduling {

class Hybrid : public Policy {
 public:
  Hybrid(Homes homes, Weighing weighing, Pool pool = {})
      : homes_(homes), weighing_(weighing), pool_(pool), admission_(homes) {}

  Homes homes() const override { return homes_; }
  Pool pool() const override { return pool_; }
  bool steady(const State& state) const override { return state.cpu().empty() && state.settled(); }
  std::vector<const Schedule*> considered() const override { return considered_; }
  void decide(State& state, const Cost& believed) override;

 protected:
  // The schedule to be made, one of the policy's own; idle if there is none. `cost`: as believed.
  virtual const Schedule& choose(const State& state, const Cost& cost, const Schedules& schedules) = 0;
  // To be called for each that is compared with others.
  void consider(const Schedule& schedule) { considered_.push_back(&schedule); }

 private:
  const Schedule& anything(const Schedules& schedules, const Schedule& chosen);

  Homes homes_;
  Weighing weighing_;
  Pool pool_;
  Admission admission_;
  Schedule rest_;
  std::vector<const Schedule*> considered_;
};

}  // namespace helm::scheduling
