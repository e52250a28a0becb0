// Target: limits of what requests wait for, and how many requests may miss one of them.
#pragma once
#include <cstdint>
#include <limits>

namespace helm::scheduling {

struct Target {
  static constexpr double kNone = std::numeric_limits<double>::infinity();
  double ttft = kNone, tpot = kNone, e2e = kNone, per_token = kNone;  // seconds
  int64_t may_miss = std::numeric_limits<int64_t>::max();

  // Whether a request whose `output` tokens came from `first` to `finish` kept all limits; one token keeps any TPOT.
  bool kept(double arrival, double first, double finish, int64_t output) const {
    const double wait = first - arrival, whole = finish - arrival;
    const double gap = output > 1 ? (whole - wait) / static_cast<double>(output - 1) : 0.0;
    return wait <= ttft && whole <= e2e && whole / static_cast<double>(output) <= per_token && gap <= tpot;
  }
};

}  // namespace helm::scheduling
