// Pool: persistent pinned threads, one fork-join per call and cheap barriers inside it.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/shares.h"

namespace helm {

// Threads spin shortly after a call (the next one usually follows at once), then sleep; the caller sleeps
// meanwhile, so that `cpus` belong to the workers; a caller that was made for the only CPU does the work itself. Calls
// from several threads run one after another. Where they run, subnormal numbers are zero.
class Pool {
 public:
  // Throws std::invalid_argument when `cpus` is empty or one of them cannot be used.
  explicit Pool(const std::vector<int>& cpus);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  size_t threads() const { return workers_.size(); }

  // work(thread) on every thread; returns when all have finished. `work` must not throw.
  template <class Work>
  void run(Work& work) {
    run_erased([](void* context, size_t thread) { (*static_cast<Work*>(context))(thread); }, &work);
  }

  // Inside run: returns when all threads have called it.
  void barrier();

  // Inside run: part(range) for `items` that threads divide as they get on, at least `least` and at most `most` of them
  // at once, until all are taken; others may not have finished then. Every thread calls it. More than kMostShared are
  // dealt evenly, a share at once.
  template <class Part>
  void divide(size_t thread, size_t items, size_t least, size_t most, const Part& part) {
    if (items > kMostShared) return part(share_of(items, thread, threads()));
    shares_.begin(thread);
    for (Range taken = shares_.take(thread, items, least, most); taken.begin < taken.end;
         taken = shares_.take(thread, items, least, most))
      part(taken);
  }

  // At least `floats` of 64-byte aligned scratch for each thread; grows, never shrinks.
  void reserve(size_t floats);
  // Inside run, or for setting up: what `reserve` provided. Valid until the next reserve.
  float* scratch(size_t thread) { return scratch_[thread].get(); }

 private:
  using Task = void (*)(void*, size_t);
  struct Free {
    void operator()(float* p) const;
  };

  void run_erased(Task task, void* context);
  void work(size_t thread);
  uint64_t await(uint64_t seen);
  void stop();

  int only_cpu_ = -1;  // of a pool of one thread
  Shares shares_;
  std::vector<std::thread> workers_;
  std::vector<std::unique_ptr<float[], Free>> scratch_;
  size_t scratch_floats_ = 0;
  std::mutex calls_;

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Task task_ = nullptr;
  void* context_ = nullptr;
  bool stopping_ = false;
  alignas(64) std::atomic<uint64_t> epoch_{0};
  alignas(64) std::atomic<size_t> unfinished_{0};
  alignas(64) std::atomic<size_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};
};

}  // namespace helm
