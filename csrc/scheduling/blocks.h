// Blocks: how many blocks of a cache are taken; which ones is the business of whoever holds the memory.
#pragma once
#include <cassert>
#include <cstdint>
#include <stdexcept>

namespace helm::scheduling {

class Blocks {
 public:
  explicit Blocks(int64_t capacity) : capacity_(capacity) {}

  int64_t capacity() const { return capacity_; }
  int64_t used() const { return used_; }
  int64_t free() const { return capacity_ - used_; }

  // Throws std::logic_error beyond the capacity: a policy took what is not there.
  void take(int64_t count) {
    if (count > free()) throw std::logic_error("more blocks than the cache has");
    used_ += count;
  }
  void give(int64_t count) {
    used_ -= count;
    assert(count >= 0 && used_ >= 0);
  }

 private:
  int64_t capacity_, used_ = 0;
};

}  // namespace helm::scheduling
