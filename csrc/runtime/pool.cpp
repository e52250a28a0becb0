#include "runtime/pool.h"

#include <sched.h>

#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "runtime/affinity.h"
#include "runtime/clock.h"
#include "runtime/subnormals.h"

namespace helm {
namespace {

constexpr double kSpinSeconds = 100e-6;  // longer than the gap between two calls of a decode loop
constexpr int kSpinsBeforeYield = 2000;  // some 50-100 us: by then the others have lost their processor

}  // namespace

Pool::Pool(const std::vector<int>& cpus) : shares_(cpus.size()) {
  if (cpus.empty()) throw std::invalid_argument("a pool needs at least one CPU");
  if (cpus.size() == 1) only_cpu_ = cpus[0];
  scratch_.resize(cpus.size());
  reserve(16);
  try {
    for (size_t i = 0; i < cpus.size(); ++i) {
      workers_.emplace_back([this, i] { work(i); });
      if (!pin(workers_.back().native_handle(), cpus[i]))
        throw std::invalid_argument("cannot pin a thread to CPU " + std::to_string(cpus[i]));
    }
  } catch (...) {
    stop();
    throw;
  }
}

Pool::~Pool() { stop(); }

void Pool::stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    epoch_.fetch_add(1, std::memory_order_release);
  }
  wake_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Pool::run_erased(Task task, void* context) {
  const std::lock_guard<std::mutex> one_call(calls_);
  if (only_cpu_ >= 0 && own_cpu() == only_cpu_) {
    flush_subnormals();
    return task(context, 0);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  task_ = task;
  context_ = context;
  unfinished_.store(threads(), std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  wake_.notify_all();
  done_.wait(lock, [this] { return unfinished_.load(std::memory_order_acquire) == 0; });
}

// The epoch after `seen`: spins, then sleeps. Others may have the processor meanwhile: whoever waits for this call has
// to run on one of them to begin the next.
uint64_t Pool::await(uint64_t seen) {
  const double deadline = now() + kSpinSeconds;
  do {
    sched_yield();
    for (int i = 0; i < 64; ++i) {
      const uint64_t epoch = epoch_.load(std::memory_order_acquire);
      if (epoch != seen) return epoch;
      pause();
    }
  } while (now() < deadline);
  std::unique_lock<std::mutex> lock(mutex_);
  wake_.wait(lock, [this, seen] { return epoch_.load(std::memory_order_acquire) != seen; });
  return epoch_.load(std::memory_order_acquire);
}

void Pool::work(size_t thread) {
  flush_subnormals();
  for (uint64_t seen = 0;;) {
    seen = await(seen);
    if (stopping_) return;
    task_(context_, thread);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      const std::lock_guard<std::mutex> lock(mutex_);
      done_.notify_one();
    }
  }
}

void Pool::barrier() {
  if (threads() == 1) return;
  const uint32_t generation = generation_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads()) {
    arrived_.store(0, std::memory_order_relaxed);
    generation_.store(generation + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; generation_.load(std::memory_order_acquire) == generation; ++spins) {
    pause();
    if (spins > kSpinsBeforeYield) std::this_thread::yield();
  }
}

void Pool::reserve(size_t floats) {
  const std::lock_guard<std::mutex> one_call(calls_);
  if (floats <= scratch_floats_) return;
  const size_t bytes = (floats * sizeof(float) + 63) / 64 * 64;
  std::vector<std::unique_ptr<float[], Free>> larger(scratch_.size());
  for (auto& piece : larger) {
    piece.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    if (piece == nullptr) throw std::bad_alloc();
  }
  scratch_ = std::move(larger);  // only once all are there: what was reserved before stays in force
  scratch_floats_ = floats;
}

void Pool::Free::operator()(float* p) const { std::free(p); }

}  // namespace helm
