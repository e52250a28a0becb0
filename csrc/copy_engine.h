// CopyEngine: moves bytes at a set rate after a set latency on a thread of its own, like a DMA engine.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "arena.h"

namespace helm {

struct Copy {
  Buffer target;
  size_t target_offset;
  Buffer source;
  size_t source_offset, size;
};

struct Span {
  double start, end;
};

// One copy at a time, in order of submission. It sleeps through most of a copy's time and spins only at the end,
// so that it takes little from a processor that it shares.
class CopyEngine {
 public:
  // rate: bytes per second; latency: seconds; cpu: -1 for no pinning. Throws std::invalid_argument.
  CopyEngine(double rate, double latency, int cpu);
  ~CopyEngine();  // finishes the copy under way and drops the queue

  // Returns the copy's ticket; blocks while kQueue copies are waiting. Ranges have been checked.
  long long submit(Copy copy);

  // Blocks until the copy is done. Throws std::invalid_argument for a ticket never given, or one followed by
  // more than kRemembered finished copies.
  Span wait(long long ticket);

  static constexpr long long kQueue = 1024, kRemembered = 65536;

 private:
  void work();
  Span move(const Copy& copy);

  const double rate_, latency_;
  std::mutex mutex_;
  std::condition_variable submitted_, finished_;
  std::deque<Copy> queue_;
  std::vector<Span> spans_;
  long long next_ = 0, done_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace helm
