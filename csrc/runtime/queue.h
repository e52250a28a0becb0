// Queue: a thread that does what was submitted, in order, like a stream of an accelerator; items with a rank may pass
// each other.
#pragma once
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "runtime/event.h"

namespace helm {

struct Work {
  std::function<void()> run;  // what it captures stays alive until it has been collected
  Events wait;
  std::shared_ptr<Event> done;  // or null
  double* times = nullptr;      // start and end, or null
  std::optional<long long> rank =
      {};  // of those with a rank that follow each other, the lowest that need not wait is next
};

// After an item has thrown, later ones are skipped, but still signal, until the error has been taken by check().
class Queue {
 public:
  // cpu: -1 for no pinning. Throws std::invalid_argument.
  explicit Queue(int cpu);
  ~Queue();  // finishes the item under way; the others only signal

  void submit(Work work);

  // Throws what the first failed item threw, once.
  void check();

  // Blocks until everything submitted so far is done; then check().
  void synchronize();

  // What is finished; its destruction is the caller's, who may need a lock for it that this thread must not take.
  std::vector<Work> collect();

  // Ends the thread, as the destructor does.
  void stop();

 private:
  void work();
  Work take();
  void perform(const Work& item);

  std::mutex mutex_;
  std::condition_variable submitted_, finished_;
  std::deque<Work> queue_;
  std::vector<Work> retired_;
  unsigned long long next_ = 0, done_ = 0;
  std::exception_ptr error_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace helm
