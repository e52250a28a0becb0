#include "runtime/copy_engine.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/affinity.h"
#include "runtime/clock.h"

namespace helm {
namespace {

constexpr double kSliceSeconds = 50e-6;  // bytes per slice follow from the rate; what shares the core waits for one
constexpr double kSpinSeconds = 10e-6;   // what a sleep may overrun by on a core that is not idle
constexpr double kNearSeconds = 100e-6;  // as long as an idle core takes to wake
constexpr double kTurnSeconds = 20e-6;   // about as long as another thread needs to move a light copy
constexpr std::chrono::milliseconds kLookAfter{5};  // how late a light copy is that nobody waits for

void sleep_until(double time) {
  timespec t;
  t.tv_sec = static_cast<time_t>(time);
  t.tv_nsec = static_cast<long>((time - static_cast<double>(t.tv_sec)) * 1e9);
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, nullptr) == EINTR) continue;
}

// Sleeps when `time` is far enough away; may return early.
void approach(double time) {
  if (time - now() > 2 * kSpinSeconds) sleep_until(time - kSpinSeconds);
}

// Hardware that moves data waits for no processor. Where the system does not allow it (false), turns are those of any
// thread.
bool ask_for_precedence(bool ahead) {
  const sched_param wanted = {.sched_priority = sched_get_priority_min(SCHED_FIFO) + (ahead ? 1 : 0)};
  return pthread_setschedparam(pthread_self(), SCHED_FIFO, &wanted) == 0;
}

size_t slice_bytes(double rate) {
  const double bytes = std::min(4194304.0, std::max(16384.0, rate * kSliceSeconds));
  return static_cast<size_t>(bytes) / 64 * 64;
}

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

}  // namespace

// The copies of an engine. Who has the turn, its thread or one that waits, deals with the first of them.
class CopyEngine::Lane : public Progress, public std::enable_shared_from_this<Lane> {
 public:
  Lane(double rate, double latency) : rate_(rate), latency_(latency), spans_(kRemembered) {}

  long long submit(Copy copy);
  Span wait(long long ticket);
  std::vector<std::shared_ptr<void>> collect();
  void work(int cpu, bool ahead);
  void stop();

  double advance() override;
  void hasten(long long ticket) override;

 private:
  void claim(long long ticket);
  bool rest(std::unique_lock<std::mutex>& lock);
  void carry_out();
  bool take_turn() { return !turn_.exchange(true, std::memory_order_acquire); }
  void end_turn() { turn_.store(false, std::memory_order_release); }

  // These belong to who has the turn.
  const Copy* first();
  double begin(const Copy& copy);
  void move(const Copy& copy, double begin) const;
  void finish(const Copy& copy, double end);
  void drop();

  const double rate_, latency_;
  std::mutex mutex_;
  std::condition_variable submitted_, finished_;
  std::deque<Copy> queue_;
  std::vector<Span> spans_;
  long long next_ = 0;
  std::atomic<long long> done_{0}, claimed_{0};  // tickets below `claimed_` are for the thread
  bool idle_ = false;                            // whether the thread has nothing to do
  std::vector<std::shared_ptr<void>> retired_;
  std::atomic<bool> stopping_{false};

  std::atomic<bool> turn_{false};
  std::atomic<long long> waiting_{0};  // copies in the queue
  const Copy* first_ = nullptr;        // of the queue, once looked up
  bool begun_ = false;                 // whether it has been moved
  Span span_ = {0, 0};                 // when it began, and when it is there
  double ended_ = 0;                   // when the latest copy was done
  bool precedes_ = false;              // whether the engine's thread runs before all others of its core
};

long long CopyEngine::Lane::submit(Copy copy) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (next_ - done_ >= kQueue) {
    claim(next_ - 1);
    finished_.wait(lock, [this] { return next_ - done_ < kQueue; });
  }
  copy.submitted = now();
  const bool asleep = copy.done != nullptr && copy.done->follow(shared_from_this(), next_), light = copy.light();
  queue_.push_back(std::move(copy));
  waiting_.fetch_add(1, std::memory_order_release);
  if (asleep || !light) claim(next_);
  if (std::exchange(idle_, false)) submitted_.notify_one();
  return next_++;
}

Span CopyEngine::Lane::wait(long long ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  require(ticket >= 0 && ticket < next_, "no copy has this ticket");
  if (done_ <= ticket) {
    lock.unlock();
    for (double time = now(), next = time; next < time + kNearSeconds; pause(), time = now()) next = advance();
    lock.lock();
  }
  if (done_ <= ticket) claim(ticket);
  finished_.wait(lock, [this, ticket] { return done_ > ticket; });
  require(done_ - ticket <= kRemembered, "the copy of this ticket is too long ago");
  return spans_[static_cast<size_t>(ticket % kRemembered)];
}

std::vector<std::shared_ptr<void>> CopyEngine::Lane::collect() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(retired_, {});
}

void CopyEngine::Lane::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  stopping_ = true;
  submitted_.notify_all();
}

void CopyEngine::Lane::hasten(long long ticket) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (done_ <= ticket) claim(ticket);
}

// The thread is to do the copy `ticket` and all before it.
void CopyEngine::Lane::claim(long long ticket) {
  if (ticket < claimed_.load(std::memory_order_relaxed)) return;
  claimed_.store(ticket + 1, std::memory_order_relaxed);
  submitted_.notify_one();
}

void CopyEngine::Lane::work(int cpu, bool ahead) {
  precedes_ = ask_for_precedence(ahead);
  if (precedes_ && ahead) pin(pthread_self(), cpu);
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds; the default of 50 us is as long as a short copy
  std::unique_lock<std::mutex> lock(mutex_);
  while (rest(lock)) {
    lock.unlock();
    while (!take_turn()) sleep_until(now() + kTurnSeconds);  // not spinning: it may be a thread of this core
    carry_out();
    end_turn();
    lock.lock();
  }
}

// Blocks until there is something for the thread to do; false when it is to end.
bool CopyEngine::Lane::rest(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (queue_.empty()) {
      idle_ = true;
      submitted_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    }
    if (queue_.empty()) return false;
    if (stopping_ || done_ < claimed_) return true;
    if (submitted_.wait_for(lock, kLookAfter) == std::cv_status::no_timeout) continue;
    lock.unlock();
    advance();
    lock.lock();
  }
}

// The first copy from begin to end, by the thread.
void CopyEngine::Lane::carry_out() {
  const Copy* copy = first();
  if (copy == nullptr) return;
  if (stopping_ || (!begun_ && !wait_all(copy->wait, stopping_, !precedes_))) return drop();
  const double end = begin(*copy);
  approach(end);
  while (now() < end) pause();
  finish(*copy, now());
}

double CopyEngine::Lane::advance() {
  if (done_ < claimed_ || waiting_.load(std::memory_order_acquire) == 0 || !take_turn()) return kUnknown;
  const auto pass = [this] {
    for (const Copy* copy = first(); copy != nullptr && copy->light() && !stopping_; copy = first()) {
      const auto ready = [](const auto& event) { return event->poll(); };
      if (!begun_ && !std::all_of(copy->wait.begin(), copy->wait.end(), ready)) return kUnknown;
      const double end = begin(*copy);
      if (now() < end) return end;
      finish(*copy, end);
    }
    return kUnknown;
  };
  const double next = pass();
  end_turn();
  return next;
}

const Copy* CopyEngine::Lane::first() {
  if (first_ != nullptr) return first_;
  const std::lock_guard<std::mutex> lock(mutex_);
  return first_ = queue_.empty() ? nullptr : &queue_.front();
}

// Moves the first copy, unless that has been done, and returns when it is there: when the link is through with it, or,
// if it was begun before that, later where the processor was slower.
double CopyEngine::Lane::begin(const Copy& copy) {
  if (begun_) return span_.end;
  double start = std::max(ended_, copy.submitted);
  for (const auto& event : copy.wait) start = std::max(start, event->time());
  span_ = {start, start + latency_ + static_cast<double>(copy.total()) / rate_};
  const bool late = now() >= span_.end;
  move(copy, start + latency_);
  if (!late) span_.end = std::max(span_.end, now());
  begun_ = true;
  return span_.end;
}

void CopyEngine::Lane::move(const Copy& copy, double begin) const {
  copy.move(slice_bytes(rate_), [&](size_t moved) { approach(begin + static_cast<double>(moved) / rate_); });
}

// The first copy was done at `end`.
void CopyEngine::Lane::finish(const Copy& copy, double end) {
  span_.end = ended_ = end;
  if (copy.times != nullptr) {
    copy.times[0] = span_.start;
    copy.times[1] = span_.end;
  }
  drop();
}

// The first copy leaves the queue, done or not.
void CopyEngine::Lane::drop() {
  if (!begun_) span_ = {now(), now()};
  const std::shared_ptr<Event> done = first_->done;
  if (done != nullptr) done->signal_at(span_.end);
  first_ = nullptr;
  begun_ = false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (queue_.front().keep) retired_.push_back(std::move(queue_.front().keep));
  queue_.pop_front();
  waiting_.fetch_sub(1, std::memory_order_relaxed);
  spans_[static_cast<size_t>(done_++ % kRemembered)] = span_;
  finished_.notify_all();
}

CopyEngine::CopyEngine(double rate, double latency, int cpu, bool ahead)
    : lane_(std::make_shared<Lane>(rate, latency)) {
  require(std::isfinite(rate) && rate > 0, "a copy engine's rate must be positive");
  require(std::isfinite(latency) && latency >= 0, "a copy engine's latency must not be negative");
  require(cpu >= -1 && cpu < sysconf(_SC_NPROCESSORS_CONF), "a copy engine's CPU must be one of this machine's");
  thread_ = std::thread([lane = lane_, cpu, ahead] { lane->work(cpu, ahead); });
  if (cpu == -1 || ahead || pin(thread_.native_handle(), cpu)) return;
  stop();
  throw std::invalid_argument("cannot pin the copy engine to CPU " + std::to_string(cpu));
}

CopyEngine::~CopyEngine() { stop(); }

void CopyEngine::stop() {
  lane_->stop();
  if (thread_.joinable()) thread_.join();
}

long long CopyEngine::submit(Copy copy) { return lane_->submit(std::move(copy)); }

Span CopyEngine::wait(long long ticket) { return lane_->wait(ticket); }

std::vector<std::shared_ptr<void>> CopyEngine::collect() { return lane_->collect(); }

}  // namespace helm
