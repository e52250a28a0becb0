// CopyEngine: moves bytes at a set rate after a set latency, like a DMA engine.
#pragma once
#include <memory>
#include <thread>
#include <vector>

#include "runtime/copy.h"

namespace helm {

struct Span {
  double start, end;
};

// One copy at a time, in order of submission. A copy's time begins when it may, or when the one before it was done, as
// on an engine that never waits for a processor: what is moved late is moved faster, but no copy takes less than the
// link does. Light copies are moved by whoever waits for them, which is idle then; a thread of the engine's own, which
// would take the processor from one that computes, does so only where nobody looks, and moves the others. It sleeps
// through most of a copy's time and spins only at the end.
class CopyEngine {
 public:
  // rate: bytes per second; latency: seconds; cpu: of its thread, -1 for no pinning. `ahead`: before other engines of
  // that CPU; where no thread may take precedence, on any CPU instead. Throws std::invalid_argument.
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
  class Lane;

  const std::shared_ptr<Lane> lane_;  // those who wait for a copy may hold it longer
  std::thread thread_;
};

}  // namespace helm
