// Shares: work that threads divide as they get on.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace helm {

struct Range {
  size_t begin, end;
};

// Share of `items` that belongs to `thread`: contiguous, even to one item.
inline Range share_of(size_t items, size_t thread, size_t threads) {
  return {items * thread / threads, items * (thread + 1) / threads};
}

// Each thread takes items of its own share from the front; when none are left, those that others have not begun, from
// the back. So none waits long for another whose processor is slower, or busy; and as long as all are alike each stays
// with the memory that it had before.
//
// Every thread begins the same jobs in the same order, with barriers between them or without. No barrier is needed:
// a thread leaves a job once it has seen every share of it empty, which it stays, so that a share of a later job means
// that all of this one is taken. Who comes first to a share in a job writes it, even if it is empty.
class Shares {
 public:
  explicit Shares(size_t threads) : shares_(threads) {}

  // The thread begins its next job.
  void begin(size_t thread) { ++shares_[thread].job; }
  // What the thread does next: half of what a share has left, in whole multiples of `least`, but at least `least`
  // items, if there are as many, and at most `most`. Empty when all is taken.
  Range take(size_t thread, size_t items, size_t least, size_t most);

 private:
  // What is left of a thread's share in a job: 24 bits of the job's number, 20 of the first item and of the end.
  struct alignas(64) Share {
    std::atomic<uint64_t> left{0};
    uint32_t job = 0;  // that the thread does, of its own
  };

  Range take_from(size_t owner, bool own, uint32_t job, size_t items, size_t least, size_t most);

  std::vector<Share> shares_;
};

// Items of a job at most: their numbers have 20 bits.
constexpr size_t kMostShared = (size_t{1} << 20) - 1;

}  // namespace helm
