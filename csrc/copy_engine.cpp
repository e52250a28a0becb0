#include "copy_engine.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "affinity.h"
#include "clock.h"

namespace helm {
namespace {

constexpr double kSliceSeconds = 200e-6;  // bytes per slice follow from the rate
constexpr double kSpinSeconds = 50e-6;    // what a sleep may overrun by

void sleep_until(double time) {
  timespec t;
  t.tv_sec = static_cast<time_t>(time);
  t.tv_nsec = static_cast<long>((time - static_cast<double>(t.tv_sec)) * 1e9);
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr);
}

// Sleeps when `time` is far enough away; may return early.
void approach(double time) {
  if (time - now() > 2 * kSpinSeconds) sleep_until(time - kSpinSeconds);
}

size_t slice_bytes(double rate) {
  const double bytes = std::min(4194304.0, std::max(16384.0, rate * kSliceSeconds));
  return static_cast<size_t>(bytes) / 64 * 64;
}

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

}  // namespace

CopyEngine::CopyEngine(double rate, double latency, int cpu) : rate_(rate), latency_(latency), spans_(kRemembered) {
  require(std::isfinite(rate) && rate > 0, "a copy engine's rate must be positive");
  require(std::isfinite(latency) && latency >= 0, "a copy engine's latency must not be negative");
  thread_ = std::thread([this] { work(); });
  if (cpu == -1 || pin(thread_.native_handle(), cpu)) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  submitted_.notify_all();
  thread_.join();
  throw std::invalid_argument("cannot pin the copy engine to CPU " + std::to_string(cpu));
}

CopyEngine::~CopyEngine() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  submitted_.notify_all();
  thread_.join();
}

long long CopyEngine::submit(Copy copy) {
  std::unique_lock<std::mutex> lock(mutex_);
  finished_.wait(lock, [this] { return next_ - done_ < kQueue; });
  queue_.push_back(std::move(copy));
  submitted_.notify_one();
  return next_++;
}

Span CopyEngine::wait(long long ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  require(ticket >= 0 && ticket < next_, "no copy has this ticket");
  finished_.wait(lock, [this, ticket] { return done_ > ticket; });
  require(done_ - ticket <= kRemembered, "the copy of this ticket is too long ago");
  return spans_[static_cast<size_t>(ticket % kRemembered)];
}

void CopyEngine::work() {
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds; the default of 50 us is as long as a short copy
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    const Copy copy = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const Span span = move(copy);
    lock.lock();
    spans_[static_cast<size_t>(done_++ % kRemembered)] = span;
    finished_.notify_all();
  }
}

Span CopyEngine::move(const Copy& copy) {
  const double start = now();
  const double begin = start + latency_;
  const size_t slice = slice_bytes(rate_);
  for (size_t moved = 0; moved < copy.size;) {
    const size_t bytes = std::min(slice, copy.size - moved);
    std::memmove(copy.target.data + copy.target_offset + moved, copy.source.data + copy.source_offset + moved, bytes);
    moved += bytes;
    if (moved < copy.size) approach(begin + static_cast<double>(moved) / rate_);
  }
  const double end = begin + static_cast<double>(copy.size) / rate_;
  approach(end);
  while (now() < end) pause();
  return {start, now()};
}

}  // namespace helm
