#include "runtime/arena.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>
#include <stdexcept>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace helm {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kAlignment = 64;

size_t round_up(size_t value, size_t unit) { return (value + unit - 1) / unit * unit; }

// A sanitizer sees one mapping, not pieces: for it a gap lies behind each of them that nobody may touch.
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kGap = 64;
void forbid(char* begin, char* end) { __asan_poison_memory_region(begin, end - begin); }
void permit(char* begin, char* end) { __asan_unpoison_memory_region(begin, end - begin); }
#else
constexpr size_t kGap = 0;
void forbid(char*, char*) {}
void permit(char*, char*) {}
#endif

// Pieces that are not empty take kAlignment bytes or more.
size_t with_gaps(size_t capacity) { return capacity + (capacity / kAlignment + 1) * kGap; }

}  // namespace

Arena::Arena(size_t capacity) : capacity_(capacity), mapped_(round_up(with_gaps(capacity), kHugePage) + kHugePage) {
  if (capacity == 0) throw std::invalid_argument("an arena needs a capacity of at least one byte");
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) throw std::bad_alloc();
  base_ = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(mapping_), kHugePage));
  madvise(base_, round_up(capacity, kHugePage), MADV_HUGEPAGE);  // advice: a refusal costs speed only
}

Arena::~Arena() {
  permit(base_, base_ + round_up(used_, kAlignment) + gaps_);  // whoever gets these addresses next
  munmap(mapping_, mapped_);
}

size_t Arena::used() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_;
}

char* Arena::alloc(size_t size, const std::string& what) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const size_t begin = round_up(used_, kAlignment);
  if (begin > capacity_ || size > capacity_ - begin)
    throw OutOfMemory("cannot allocate " + std::to_string(size) + " bytes for " + what + ": " + std::to_string(used_) +
                      " of " + std::to_string(capacity_) + " bytes are in use");
  used_ = begin + size;
  char* const piece = base_ + begin + gaps_;
  if (size == 0) return piece;
  gaps_ += kGap;
  forbid(piece + size, base_ + round_up(used_, kAlignment) + gaps_);
  return piece;
}

}  // namespace helm
