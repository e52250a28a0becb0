// Scheduler: a policy and the state of one replica, for whoever runs passes in real time.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "scheduling/clock.h"
#include "scheduling/policy.h"

namespace helm::scheduling {

class Scheduler {
 public:
  // `hash_block`: as State has it. Throws std::invalid_argument for blocks of prefixes that are not whole blocks.
  Scheduler(Cost believed, const Limits& limits, std::unique_ptr<Policy> policy, int64_t hash_block);

  // Requests have numbers of the caller's, which go up. `hashes`: of the full blocks of its prompt. Throws
  // std::invalid_argument for a number that does not, or a request that can never run.
  void add(int64_t request, int64_t prompt, int64_t output, int64_t priority, std::vector<int64_t> hashes);
  // At once between passes, else when the pass is over. A request that is over is no error.
  void cancel(int64_t request);

  // The next pass; null when there is nothing to do. One that has not been committed is taken back.
  const Decision* decide();
  // Seconds that each side worked in the decided pass; commit() says how long it took.
  void observe(const Times& measured) { measured_ = measured; }
  // It took so long, and `ended` are over with it. `yielded`: who yielded a token, which tells when those of cohorts
  // come; by default they come when costs say.
  void commit(double seconds, const std::vector<int64_t>& ended, const std::optional<std::vector<int64_t>>& yielded);

  // Whatever runs or waits is gone, and with it all that was cached; a pass under way is taken back.
  void reset();

  // Of all passes that were observed: what they take by the believed costs, and what they took.
  const Times& priced() const { return priced_; }
  const Times& took() const { return took_; }

  int64_t request(Id id) const { return requests_.at(id).number; }
  const State& state() const { return state_; }

 private:
  void take_back();
  void finish_pass();
  void forget(Id id);
  std::vector<Id> numbers(const std::vector<int64_t>& requests) const;

  struct Request {
    int64_t number;
    std::vector<int64_t> hashes;  // a Sequence refers to them
  };

  Cost believed_;
  std::unique_ptr<Policy> policy_;
  State state_;
  Clock clock_;
  bool deciding_ = false;  // a pass is under way
  std::optional<Times> measured_;
  Times priced_, took_;
  std::vector<int64_t> cancelled_;  // during the pass
  std::map<int64_t, Id> numbers_;   // of requests that are not over
  std::map<Id, Request> requests_;
  int64_t last_ = -1;
};

}  // namespace helm::scheduling
