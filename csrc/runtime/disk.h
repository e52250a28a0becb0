// DiskFile: a storage tier in a file, read past the page cache where the file system allows it. Some refuse direct
// reads when a file is opened, some with the first one: both end in a buffered file.
#pragma once
#include <atomic>
#include <mutex>
#include <string>

namespace helm {

// What the system refused: an errno and the path.
class DiskError : public std::exception {
 public:
  DiskError(int code, std::string path) : code_(code), path_(std::move(path)) {}
  const char* what() const noexcept override { return path_.c_str(); }
  int code() const { return code_; }

 private:
  int code_;
  std::string path_;
};

// Offsets are multiples of kBlock; sizes are any. Where memory or size are not whole blocks, a block-aligned
// buffer of the file's own lies in between, one operation at a time. Buffered files drop what they wrote or read
// from the page cache, so that times are the disk's in both modes.
class DiskFile {
 public:
  static constexpr size_t kBlock = 4096;

  // create: a new or emptied file with room for `size` bytes, else one that has them. Throws DiskError,
  // std::invalid_argument when the file is too small.
  DiskFile(const std::string& path, size_t size, bool direct, bool create);
  ~DiskFile();
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;

  bool direct() const { return direct_; }
  size_t size() const { return size_; }

  // Ranges have been checked. A write owns whole blocks: what follows it in its last block may become zero.
  void write(size_t offset, const char* source, size_t size);
  void read(size_t offset, char* target, size_t size);

 private:
  void open_file(bool direct, bool create);
  void reserve(bool create);
  void give_up_direct();
  bool straight(const void* memory, size_t size) const;
  void put(size_t offset, const char* source, size_t size);
  void get(size_t offset, char* target, size_t size, size_t wanted);

  const std::string path_;
  const size_t size_;
  bool opened_direct_ = false;
  std::atomic<bool> direct_{false};  // false for good once the file system has refused
  int file_ = -1;
  char* bounce_ = nullptr;
  std::mutex mutex_;  // of bounce_
};

}  // namespace helm
