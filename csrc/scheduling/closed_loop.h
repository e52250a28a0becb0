// Closed loop: users who each send a request, wait until it is over, think, and send the next, until all requests are
// sent. Requests are sent in the order of their rows, by whoever is next; the user of one that has ended, was rejected
// or is cancelled thinks for as long as its row says.
#pragma once
#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "scheduling/replica.h"
#include "scheduling/router.h"

namespace helm::scheduling {

class ClosedLoop {
 public:
  // `requests` outlive the loop, and so does `arrival`, one for each of them, which becomes when they are sent.
  ClosedLoop(const Requests& requests, std::vector<double>& arrival);
  ClosedLoop(const ClosedLoop&) = delete;
  ClosedLoop& operator=(const ClosedLoop&) = delete;

  // The requests with those arrivals, and cancels as long after them as they were after 0.
  const Requests& requests() const { return requests_; }
  // Serves all of them, or as many as it takes to lose the run, in the order of time: passes that end, then requests
  // that are sent, then passes that begin.
  void serve(Replicas& replicas, Router& router);

 private:
  double next_send() const;
  void send(Replicas& replicas, Router& router);
  void step(Replica& replica, double until);

  Requests requests_;
  std::vector<double>& arrival_;
  std::vector<double> cancel_;
  std::priority_queue<double, std::vector<double>, std::greater<>> sends_;  // by users who think
  int64_t sent_ = 0;
};

}  // namespace helm::scheduling
