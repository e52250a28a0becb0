#include "runtime/shares.h"

#include <algorithm>

namespace helm {
namespace {

constexpr uint32_t kJobs = 1u << 24;

uint64_t word_of(uint32_t job, const Range& left) {
  return static_cast<uint64_t>(job % kJobs) << 40 | static_cast<uint64_t>(left.begin) << 20 | left.end;
}

Range left_in(uint64_t word) { return {word >> 20 & kMostShared, word & kMostShared}; }

// Whether a word is of a job before or after another, numbers of which wrap around.
int32_t jobs_after(uint64_t word, uint32_t job) {
  return static_cast<int32_t>((static_cast<uint32_t>(word >> 40) - job) << 8);
}

}  // namespace

Range Shares::take(size_t thread, size_t items, size_t least, size_t most) {
  const size_t threads = shares_.size();
  for (size_t i = 0; i < threads; ++i) {
    const Range taken = take_from((thread + i) % threads, i == 0, shares_[thread].job, items, least, most);
    if (taken.begin < taken.end) return taken;
  }
  return {0, 0};
}

// Whoever comes first to a share in a job puts it there, be it empty.
Range Shares::take_from(size_t owner, bool own, uint32_t job, size_t items, size_t least, size_t most) {
  std::atomic<uint64_t>& share = shares_[owner].left;
  uint64_t seen = share.load(std::memory_order_relaxed);
  for (;;) {
    const int32_t after = jobs_after(seen, job);
    if (after > 0) return {0, 0};
    const Range left = after < 0 ? share_of(items, owner, shares_.size()) : left_in(seen);
    const size_t there = left.end - left.begin;
    if (after == 0 && there == 0) return {0, 0};
    const size_t count = std::min(there, std::min(most, std::max(least, there / 2 / least * least)));
    const Range taken = own ? Range{left.begin, left.begin + count} : Range{left.end - count, left.end};
    const Range rest = own ? Range{taken.end, left.end} : Range{left.begin, taken.begin};
    if (share.compare_exchange_weak(seen, word_of(job, rest), std::memory_order_relaxed)) return taken;
  }
}

}  // namespace helm
