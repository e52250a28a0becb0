// Event: something that happens once, until it is cleared; any thread may wait for it.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "affinity.h"
#include "clock.h"

namespace helm {

class Event {
 public:
  void clear() { done_.store(false, std::memory_order_release); }

  void signal() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      time_ = now();
      done_.store(true, std::memory_order_release);
    }
    signalled_.notify_all();
  }

  bool done() const { return done_.load(std::memory_order_acquire); }

  // Seconds when it was signalled last; meaningful once done.
  double time() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return time_;
  }

  // Blocks until done, or until `stop` is seen to be set; returns done. It spins shortly, then sleeps: the
  // waiting thread may share its core with one that computes. On a core of its own it spins for as long as devices
  // that share a matrix wait for each other, since an idle core takes 50 to 100 us to wake; what copies goes first.
  // `spins` is false for a thread that runs before all others of its core: they would wait with it.
  bool wait(const std::atomic<bool>& stop, bool spins = true) const {
    for (const double limit = now() + kSpinSeconds; spins && now() < limit; pause())
      if (done()) return true;
    if (spins && own_cpu() != -1)
      for (const double limit = now() + kOwnSpinSeconds; now() < limit; sched_yield())
        if (done() || stop.load(std::memory_order_acquire)) return done();
    std::unique_lock<std::mutex> lock(mutex_);
    while (!done() && !stop.load(std::memory_order_acquire)) signalled_.wait_for(lock, kLookForStop);
    return done();
  }

  void wait() const { wait(std::atomic<bool>{false}); }

 private:
  static constexpr double kSpinSeconds = 20e-6, kOwnSpinSeconds = 2e-3;
  static constexpr std::chrono::milliseconds kLookForStop{5};

  mutable std::mutex mutex_;
  mutable std::condition_variable signalled_;
  std::atomic<bool> done_{false};
  double time_ = 0;
};

using Events = std::vector<std::shared_ptr<Event>>;

// Waits for all; false when stopped before.
inline bool wait_all(const Events& events, const std::atomic<bool>& stop, bool spins = true) {
  for (const auto& event : events)
    if (!event->wait(stop, spins)) return false;
  return true;
}

}  // namespace helm
