// Clock: seconds as a sum of many short ones. Whether they are added one by one or by the thousand, two clocks agree to
// the last digits; what is due is judged with more tolerance than that, so both see the same events.
#pragma once

namespace helm::scheduling {

class Clock {
 public:
  double now() const { return high_; }
  void set(double now) { high_ = now, low_ = 0; }
  // Compensated (Knuth's two-sum): the rounding of each sum is kept for the next.
  void add(double seconds) {
    const double term = seconds + low_, sum = high_ + term, part = sum - high_;
    low_ = (high_ - (sum - part)) + (term - part);
    high_ = sum;
  }
  double after(double seconds) const {
    Clock then = *this;
    then.add(seconds);
    return then.now();
  }

 private:
  double high_ = 0, low_ = 0;
};

// Whether what happens at `time` has happened by `now`.
inline bool due(double time, double now) { return time <= now * (1 + 1e-12); }

}  // namespace helm::scheduling
