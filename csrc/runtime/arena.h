// Arena: a device's bounded memory, and the pieces handed out of it.
#pragma once
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

namespace helm {

// Address space for `capacity` bytes is reserved at once; pages are zero and touched when first used; huge
// pages are asked for. Pieces are 64-byte aligned and freed only with the whole arena.
class Arena {
 public:
  // Throws std::invalid_argument when capacity is zero, std::bad_alloc when the system refuses.
  explicit Arena(size_t capacity);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  size_t capacity() const { return capacity_; }
  size_t used() const;

  // Throws OutOfMemory when the piece does not fit.
  char* alloc(size_t size, const std::string& what);

 private:
  size_t capacity_;
  size_t used_ = 0;
  size_t gaps_ = 0;  // bytes between pieces, of builds with a sanitizer alone
  mutable std::mutex mutex_;
  void* mapping_;
  size_t mapped_;
  char* base_;
};

class OutOfMemory : public std::exception {
 public:
  explicit OutOfMemory(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

// A piece of an arena, which it keeps alive.
struct Buffer {
  std::shared_ptr<Arena> arena;
  char* data;
  size_t size;
};

}  // namespace helm
