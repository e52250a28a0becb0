// Event: something that happens once, until it is cleared; any thread may wait for it.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/affinity.h"
#include "runtime/clock.h"

namespace helm {

// What goes on when those who wait for it look, as the progress engine of a message-passing library does.
class Progress {
 public:
  virtual ~Progress() = default;

  // Does what can be done without waiting. Returns the seconds from which the next look finds more to do, kUnknown
  // when that depends on others.
  virtual double advance() = 0;

  // From now on nobody may look: all up to item `ticket` is done by a thread of its own.
  virtual void hasten(long long ticket) = 0;

  static constexpr double kUnknown = std::numeric_limits<double>::infinity();
};

class Event {
 public:
  void clear() { done_.store(false, std::memory_order_release); }

  void signal() { signal_at(now()); }

  // `time`: when it happened, which may be before anybody looked.
  void signal_at(double time) {
    std::shared_ptr<Progress> ended;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      time_ = time;
      ended = std::move(progress_);
      progresses_.store(false, std::memory_order_relaxed);
      done_.store(true, std::memory_order_release);
    }
    signalled_.notify_all();
  }

  // Item `ticket` of `progress` will signal it: who waits for it helps. Returns whether somebody sleeps meanwhile.
  bool follow(std::shared_ptr<Progress> progress, long long ticket) {
    const std::lock_guard<std::mutex> lock(mutex_);
    progress_ = std::move(progress);
    ticket_ = ticket;
    progresses_.store(true, std::memory_order_relaxed);
    return sleepers_ > 0;
  }

  bool done() const { return done_.load(std::memory_order_acquire); }

  // The same, after helping once. No lock is taken for an event that nothing but its maker can bring about.
  bool poll() const {
    if (done()) return true;
    if (const auto progress = followed(); progress != nullptr) progress->advance();
    return done();
  }

  // Seconds when it was signalled last; meaningful once done.
  double time() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return time_;
  }

  // Blocks until done, or until `stop` is seen to be set; returns done. It spins shortly, then sleeps: the
  // waiting thread may share its core with one that computes. On a core of its own it spins for as long as devices
  // that share a matrix wait for each other, since an idle core takes 50 to 100 us to wake. While it spins it helps.
  // `spins` is false for a thread that runs before all others of its core: they would wait with it.
  bool wait(const std::atomic<bool>& stop, bool spins = true) const {
    if (done()) return true;
    const auto progress = followed();
    double limit = now() + kSpinSeconds;
    for (double time = now(); spins && time < limit; pause(), time = now()) {
      const double next = progress != nullptr ? progress->advance() : Progress::kUnknown;
      if (done()) return true;
      if (next < time + kNearSeconds) limit = std::max(limit, next + kSpinSeconds);
    }
    if (spins && own_cpu() != -1)
      for (const double last = now() + kOwnSpinSeconds; now() < last; sched_yield()) {
        if (progress != nullptr) progress->advance();
        if (done() || stop.load(std::memory_order_acquire)) return done();
      }
    sleep(stop);
    return done();
  }

  void wait() const { wait(std::atomic<bool>{false}); }

 private:
  static constexpr double kSpinSeconds = 20e-6, kOwnSpinSeconds = 2e-3;
  static constexpr double kNearSeconds = 100e-6;  // as long as an idle core takes to wake
  static constexpr std::chrono::milliseconds kLookForStop{5};

  std::shared_ptr<Progress> followed() const {
    if (!progresses_.load(std::memory_order_relaxed)) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    return progress_;
  }

  void sleep(const std::atomic<bool>& stop) const {
    std::unique_lock<std::mutex> lock(mutex_);
    ++sleepers_;
    if (const auto progress = progress_; progress != nullptr) {
      const long long ticket = ticket_;
      lock.unlock();
      progress->hasten(ticket);
      lock.lock();
    }
    while (!done() && !stop.load(std::memory_order_acquire)) signalled_.wait_for(lock, kLookForStop);
    --sleepers_;
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable signalled_;
  std::atomic<bool> done_{false}, progresses_{false};
  std::shared_ptr<Progress> progress_;  // until signalled, or null
  long long ticket_ = 0;
  mutable int sleepers_ = 0;
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
