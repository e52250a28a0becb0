// CopyEngine: moves bytes at a set rate after a set latency on a thread of its own, like a DMA engine.
#pragma once
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "arena.h"
#include "event.h"
#include "format.h"

namespace helm {

// Rows of a packed matrix (pack.h), chosen by their numbers.
struct Lookup {
  Buffer ids = {nullptr, nullptr, 0};       // int32, read when the copy begins; no data: nothing is looked up
  size_t rows = 0, columns = 0;             // of the matrix
  Format format = Format::f32;
};

// Bytes that lie together on either side, from the offsets of a copy on.
struct Piece {
  size_t target, source, size;
};

// counts[0] times counts[1] pieces of `size` bytes, at the given strides from each other on either side; or counts[0]
// rows of `size` bytes that `lookup` chooses, one after the other in the target; or `pieces`, if there are any.
struct Copy {
  Buffer target;
  size_t target_offset;
  Buffer source;
  size_t source_offset, size;
  size_t target_strides[2] = {0, 0}, source_strides[2] = {0, 0}, counts[2] = {1, 1};
  Lookup lookup = {};
  std::vector<Piece> pieces = {};
  Events wait = {};                      // before the copy's time begins
  std::shared_ptr<Event> done = {};      // or null
  double* times = nullptr;               // start and end, or null
  std::shared_ptr<void> keep = {};       // alive until it has been collected
  double submitted = 0;                  // when; the engine sets it

  size_t total() const;  // bytes
};

struct Span {
  double start, end;
};

// One copy at a time, in order of submission. It sleeps through most of a copy's time and spins only at the end,
// so that it takes little from a processor that it shares. A copy's time begins when it may, or when the one before it
// was done, as on an engine that never waits for a processor: what the thread begins late it moves faster, but no copy
// takes less than the link does.
class CopyEngine {
 public:
  // rate: bytes per second; latency: seconds; cpu: -1 for no pinning. `ahead`: before other engines of that CPU; where
  // no thread may take precedence, on any CPU instead. Throws std::invalid_argument.
  CopyEngine(double rate, double latency, int cpu, bool ahead = false);
  ~CopyEngine();  // finishes the copy under way; the others only signal

  // Returns the copy's ticket; blocks while kQueue copies are waiting. Ranges have been checked.
  long long submit(Copy copy);

  // Blocks until the copy is done. Throws std::invalid_argument for a ticket never given, or one followed by
  // more than kRemembered finished copies.
  Span wait(long long ticket);

  // What finished copies kept; its destruction is the caller's, who may need a lock for it.
  std::vector<std::shared_ptr<void>> collect();

  // Ends the thread, as the destructor does.
  void stop();

  static constexpr long long kQueue = 1024, kRemembered = 65536;

 private:
  void work(int cpu, bool ahead);
  Span perform(const Copy& copy);
  void move(const Copy& copy, double begin);

  const double rate_, latency_;
  std::mutex mutex_;
  std::condition_variable submitted_, finished_;
  std::deque<Copy> queue_;
  std::vector<Span> spans_;
  long long next_ = 0, done_ = 0;
  std::vector<std::shared_ptr<void>> retired_;
  double ended_ = 0;  // when the latest copy was done
  bool precedes_ = false;  // whether its thread runs before all others of its core
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace helm
