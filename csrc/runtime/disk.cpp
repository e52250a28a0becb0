#include "runtime/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

namespace helm {
namespace {

constexpr size_t kBounce = size_t{4} << 20;

size_t blocks(size_t size) { return (size + DiskFile::kBlock - 1) / DiskFile::kBlock * DiskFile::kBlock; }

// What `call` returns once no signal has interrupted it.
template <class Call>
int uninterrupted(const Call& call) {
  int result;
  do result = call();
  while (result < 0 && errno == EINTR);
  return result;
}

// What file systems say that have no direct transfers.
bool refused(int code) { return code == EINVAL || code == EOPNOTSUPP; }

}  // namespace

DiskFile::DiskFile(const std::string& path, size_t size, bool direct, bool create) : path_(path), size_(size) {
  open_file(direct, create);
  try {
    reserve(create);
    bounce_ = static_cast<char*>(std::aligned_alloc(kBlock, kBounce));
    if (bounce_ == nullptr) throw std::bad_alloc();
  } catch (...) {
    close(file_);
    throw;
  }
}

DiskFile::~DiskFile() {
  std::free(bounce_);
  close(file_);
}

void DiskFile::open_file(bool direct, bool create) {
  const int flags = O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_TRUNC : 0);
  const auto opened = [&](int more) { return uninterrupted([&] { return open(path_.c_str(), flags | more, 0644); }); };
  if (direct) file_ = opened(O_DIRECT);
  opened_direct_ = direct_ = file_ >= 0;
  if (direct && !direct_ && !refused(errno)) throw DiskError(errno, path_);
  if (!direct_) file_ = opened(0);
  if (file_ < 0) throw DiskError(errno, path_);
}

void DiskFile::reserve(bool create) {
  const auto length = static_cast<off_t>(blocks(size_));
  if (create) {
    if (length > 0 && uninterrupted([&] { return fallocate(file_, 0, 0, length); }) == 0) return;
    if (length > 0 && errno != EOPNOTSUPP) throw DiskError(errno, path_);
    if (uninterrupted([&] { return ftruncate(file_, length); }) != 0) throw DiskError(errno, path_);
    return;
  }
  struct stat found;
  if (fstat(file_, &found) != 0) throw DiskError(errno, path_);
  if (found.st_size < static_cast<off_t>(size_))
    throw std::invalid_argument(path_ + " has " + std::to_string(found.st_size) + " bytes, needs " +
                                std::to_string(size_));
}

// Whether at least one block can go between the file and `memory` itself.
bool DiskFile::straight(const void* memory, size_t size) const {
  if (!direct_) return true;
  return reinterpret_cast<uintptr_t>(memory) % kBlock == 0 && size >= kBlock;
}

// Direct transfers were refused: the file is buffered from now on. Threads may find out together.
void DiskFile::give_up_direct() {
  const int flags = fcntl(file_, F_GETFL);
  if (flags < 0 || fcntl(file_, F_SETFL, flags & ~O_DIRECT) != 0) throw DiskError(errno, path_);
  direct_ = false;
}

void DiskFile::put(size_t offset, const char* source, size_t size) {
  bool once = opened_direct_;
  for (size_t moved = 0; moved < size;) {
    const ssize_t n = pwrite(file_, source + moved, size - moved, static_cast<off_t>(offset + moved));
    if (n < 0 && once && refused(errno)) {
      once = false;
      give_up_direct();
      continue;
    }
    if (n < 0 && errno != EINTR) throw DiskError(errno, path_);
    if (n == 0) throw DiskError(EIO, path_);
    if (n > 0) moved += static_cast<size_t>(n);
  }
}

// Up to `size` bytes, of which the first `wanted` must exist: the last block of a file may be short.
void DiskFile::get(size_t offset, char* target, size_t size, size_t wanted) {
  bool once = opened_direct_;
  for (size_t moved = 0; moved < wanted;) {
    const ssize_t n = pread(file_, target + moved, size - moved, static_cast<off_t>(offset + moved));
    if (n < 0 && once && refused(errno)) {
      once = false;
      give_up_direct();
      continue;
    }
    if (n < 0 && errno != EINTR) throw DiskError(errno, path_);
    if (n == 0) throw DiskError(EIO, path_);
    if (n > 0) moved += static_cast<size_t>(n);
  }
}

void DiskFile::write(size_t offset, const char* source, size_t size) {
  for (size_t moved = 0; moved < size;) {
    const size_t left = size - moved, at = offset + moved;
    if (straight(source + moved, left)) {
      const size_t n = direct_ ? left / kBlock * kBlock : left;
      put(at, source + moved, n);
      moved += n;
      continue;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t n = std::min(left, kBounce);
    std::memcpy(bounce_, source + moved, n);
    std::memset(bounce_ + n, 0, blocks(n) - n);
    put(at, bounce_, blocks(n));
    moved += n;
  }
  if (direct_) return;
  if (uninterrupted([&] { return fdatasync(file_); }) != 0) throw DiskError(errno, path_);
  posix_fadvise(file_, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_DONTNEED);  // advice
}

void DiskFile::read(size_t offset, char* target, size_t size) {
  for (size_t moved = 0; moved < size;) {
    const size_t left = size - moved, at = offset + moved;
    if (straight(target + moved, left)) {
      const size_t n = direct_ ? left / kBlock * kBlock : left;
      get(at, target + moved, n, n);
      moved += n;
      continue;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    const size_t n = std::min(left, kBounce);
    get(at, bounce_, blocks(n), n);
    std::memcpy(target + moved, bounce_, n);
    moved += n;
  }
  if (!direct_)
    posix_fadvise(file_, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_DONTNEED);  // advice
}

}  // namespace helm
