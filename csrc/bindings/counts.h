// Counts, and pieces of copies, as Python hands them over.
#pragma once
#include <string>
#include <vector>

#include "bindings/bindings.h"
#include "runtime/copy.h"

namespace helm {

// Entries of an int64 array, `width` together.
class Counts {
 public:
  Counts(const char* name, const py::buffer& buffer, size_t width)
      : name_(name), info_(buffer.request()), width_(width) {
    if (info_.itemsize != sizeof(int64_t)) throw py::value_error(std::string(name) + " must be int64");
    if (info_.size % static_cast<py::ssize_t>(width) != 0)
      throw py::value_error(std::string(name) + " must have " + std::to_string(width) + " columns");
    View(name, buffer, 0, sizeof(int64_t), false);  // contiguous
  }
  size_t size() const { return static_cast<size_t>(info_.size) / width_; }
  size_t at(size_t row, size_t column = 0) const {
    return count_of(name_, static_cast<const int64_t*>(info_.ptr)[row * width_ + column], 0);
  }
  template <class Entry, class Make>
  std::vector<Entry> all(Make make) const {
    std::vector<Entry> found;
    for (size_t i = 0; i < size(); ++i) found.push_back(make(i));
    return found;
  }
  std::vector<size_t> plain() const {
    return all<size_t>([this](size_t i) { return at(i); });
  }

 private:
  const char* name_;
  py::buffer_info info_;
  size_t width_;
};

// Columns: target offset, source offset, bytes. Throws py::value_error for pieces that are not in the buffers, the last
// of whose bytes lie `target_before` and `source_before` behind the offsets.
inline std::vector<Piece> pieces_of(const py::buffer& given, const Buffer& target, size_t target_before,
                                    const Buffer& source, size_t source_before) {
  const Counts pieces("pieces", given, 3);
  return pieces.all<Piece>([&](size_t i) {
    const Piece piece{pieces.at(i, 0), pieces.at(i, 1), pieces.at(i, 2)};
    expect_range("target", target, target_before + piece.target, piece.size);
    expect_range("source", source, source_before + piece.source, piece.size);
    return piece;
  });
}

}  // namespace helm
