// Copy: bytes from one buffer to another, in one or many pieces.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "runtime/arena.h"
#include "runtime/event.h"
#include "formats/format.h"

namespace helm {

// Rows of a packed matrix (pack.h), chosen by their numbers.
struct Lookup {
  Buffer ids = {nullptr, nullptr, 0};  // int32, read when the copy begins; no data: nothing is looked up
  size_t rows = 0, columns = 0;        // of the matrix
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
  Events wait = {};                  // before the copy's time begins
  std::shared_ptr<Event> done = {};  // or null
  double* times = nullptr;           // start and end, or null
  std::shared_ptr<void> keep = {};   // alive until it has been collected
  double submitted = 0;              // when; the engine sets it

  size_t total() const;  // bytes

  // A copy that takes less of a processor than waking a thread for it would.
  bool light() const { return total() <= kLightBytes; }

  // Moves the bytes, in slices of at most so many; after each but the last, moved(bytes so far).
  void move(size_t slice, const std::function<void(size_t)>& moved) const;

  static constexpr size_t kLightBytes = 65536;  // some 5 us from another core's cache
};

// This thread's bytes of every piece: from one place of a buffer to another that is apart from it.
void copy_share(const Buffer& buffer, const std::vector<Piece>& pieces, size_t thread, size_t threads);

}  // namespace helm
