#include "copy_engine.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "affinity.h"
#include "clock.h"
#include "pack.h"

namespace helm {
namespace {

constexpr double kSliceSeconds = 50e-6;  // bytes per slice follow from the rate; what shares the core waits for one
constexpr double kSpinSeconds = 10e-6;   // what a sleep may overrun by on a core that is not idle

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

// Row `id` of a packed matrix as it is stored row-major; nothing for an id that is none of its rows.
void look_up(const Lookup& matrix, const char* packed, int32_t id, char* target) {
  if (id < 0 || static_cast<size_t>(id) >= matrix.rows) return;
  copy_row(packed, matrix.format, matrix.columns, static_cast<size_t>(id), target);
}

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

}  // namespace

size_t Copy::total() const {
  if (pieces.empty()) return counts[0] * counts[1] * size;
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.size;
  return bytes;
}

CopyEngine::CopyEngine(double rate, double latency, int cpu, bool ahead)
    : rate_(rate), latency_(latency), spans_(kRemembered) {
  require(std::isfinite(rate) && rate > 0, "a copy engine's rate must be positive");
  require(std::isfinite(latency) && latency >= 0, "a copy engine's latency must not be negative");
  require(cpu >= -1 && cpu < sysconf(_SC_NPROCESSORS_CONF), "a copy engine's CPU must be one of this machine's");
  thread_ = std::thread([this, cpu, ahead] { work(cpu, ahead); });
  if (cpu == -1 || ahead || pin(thread_.native_handle(), cpu)) return;
  stop();
  throw std::invalid_argument("cannot pin the copy engine to CPU " + std::to_string(cpu));
}

CopyEngine::~CopyEngine() { stop(); }

void CopyEngine::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  submitted_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::vector<std::shared_ptr<void>> CopyEngine::collect() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(retired_, {});
}

long long CopyEngine::submit(Copy copy) {
  std::unique_lock<std::mutex> lock(mutex_);
  finished_.wait(lock, [this] { return next_ - done_ < kQueue; });
  copy.submitted = now();
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

void CopyEngine::work(int cpu, bool ahead) {
  precedes_ = ask_for_precedence(ahead);
  if (precedes_ && ahead) pin(pthread_self(), cpu);
  prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds; the default of 50 us is as long as a short copy
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Copy copy = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    const Span span = perform(copy);
    if (copy.done) copy.done->signal();
    lock.lock();
    if (copy.keep) retired_.push_back(std::move(copy.keep));
    spans_[static_cast<size_t>(done_++ % kRemembered)] = span;
    finished_.notify_all();
  }
}

Span CopyEngine::perform(const Copy& copy) {
  if (stopping_ || !wait_all(copy.wait, stopping_, !precedes_)) return {now(), now()};
  double begin = std::max(ended_, copy.submitted);
  for (const auto& event : copy.wait) begin = std::max(begin, event->time());
  const double end = begin + latency_ + static_cast<double>(copy.total()) / rate_;
  move(copy, begin + latency_);
  approach(end);
  while (now() < end) pause();
  const Span span = {begin, ended_ = now()};
  if (copy.times != nullptr) {
    copy.times[0] = span.start;
    copy.times[1] = span.end;
  }
  return span;
}

void CopyEngine::move(const Copy& copy, double begin) {
  const size_t slice = slice_bytes(rate_);
  const size_t total = copy.total();
  size_t moved = 0, pause_at = slice;
  const auto moves = [&](size_t bytes) {
    moved += bytes;
    if (moved < pause_at || moved == total) return;
    approach(begin + static_cast<double>(moved) / rate_);
    pause_at = moved + slice;
  };
  const auto move_piece = [&](char* target, const char* source, size_t size) {
    for (size_t at = 0; at < size;) {
      const size_t bytes = std::min(slice, size - at);
      std::memmove(target + at, source + at, bytes);
      at += bytes;
      moves(bytes);
    }
  };
  char* const target = copy.target.data + copy.target_offset;
  const char* const source = copy.source.data + copy.source_offset;
  for (const Piece& piece : copy.pieces) move_piece(target + piece.target, source + piece.source, piece.size);
  if (!copy.pieces.empty()) return;
  if (const auto* ids = reinterpret_cast<const int32_t*>(copy.lookup.ids.data); ids != nullptr)
    for (size_t i = 0; i < copy.counts[0]; ++i, moves(copy.size))
      look_up(copy.lookup, source, ids[i], target + i * copy.size);
  else
    for (size_t i = 0; i < copy.counts[0]; ++i)
      for (size_t j = 0; j < copy.counts[1]; ++j)
        move_piece(target + i * copy.target_strides[0] + j * copy.target_strides[1],
                   source + i * copy.source_strides[0] + j * copy.source_strides[1], copy.size);
}

}  // namespace helm
