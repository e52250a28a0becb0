#include "runtime/queue.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/affinity.h"

namespace helm {

Queue::Queue(int cpu)
    : thread_([this, cpu] {
        own_cpu() = cpu;
        work();
      }) {
  if (cpu == -1 || pin(thread_.native_handle(), cpu)) return;
  stop();
  throw std::invalid_argument("cannot pin the queue to CPU " + std::to_string(cpu));
}

Queue::~Queue() { stop(); }

void Queue::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  submitted_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Queue::submit(Work work) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(std::move(work));
    ++next_;
  }
  submitted_.notify_one();
}

void Queue::check() {
  std::exception_ptr error;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::swap(error, error_);
  }
  if (error) std::rethrow_exception(error);
}

void Queue::synchronize() {
  {
    std::unique_lock<std::mutex> lock(mutex_);
    const auto last = next_;
    finished_.wait(lock, [this, last] { return done_ >= last; });
  }
  check();
}

std::vector<Work> Queue::collect() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(retired_, {});
}

void Queue::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    submitted_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (queue_.empty()) return;
    Work item = take();
    lock.unlock();
    perform(item);
    if (item.done) item.done->signal();
    lock.lock();
    retired_.push_back(std::move(item));
    ++done_;
    finished_.notify_all();
  }
}

Work Queue::take() {
  const auto ready = [](const Work& each) {
    return std::all_of(each.wait.begin(), each.wait.end(), [](const auto& event) { return event->poll(); });
  };
  auto best = queue_.begin();
  bool found = false;
  for (auto each = queue_.begin(); each != queue_.end() && each->rank; ++each)
    if (ready(*each) && (!found || *each->rank < *best->rank)) best = each, found = true;
  Work item = std::move(*best);
  queue_.erase(best);
  return item;
}

void Queue::perform(const Work& item) {
  if (!wait_all(item.wait, stopping_)) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_ || error_) return;
  }
  const double start = now();
  try {
    item.run();
  } catch (...) {
    const std::lock_guard<std::mutex> lock(mutex_);
    error_ = std::current_exception();
  }
  if (item.times == nullptr) return;
  item.times[0] = start;
  item.times[1] = now();
}

}  // namespace helm
