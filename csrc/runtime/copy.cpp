#include "runtime/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "formats/pack.h"
#include "runtime/pool.h"

namespace helm {
namespace {

// Row `id` of a packed matrix as it is stored row-major; nothing for an id that is none of its rows.
void look_up(const Lookup& matrix, const char* packed, int32_t id, char* target) {
  if (id < 0 || static_cast<size_t>(id) >= matrix.rows) return;
  copy_row(packed, matrix.format, matrix.columns, static_cast<size_t>(id), target);
}

}  // namespace

size_t Copy::total() const {
  if (pieces.empty()) return counts[0] * counts[1] * size;
  size_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.size;
  return bytes;
}

void Copy::move(size_t slice, const std::function<void(size_t)>& moved) const {
  const size_t all = total();
  size_t done = 0, next = slice;
  const auto moves = [&](size_t bytes) {
    done += bytes;
    if (done < next || done == all) return;
    moved(done);
    next = done + slice;
  };
  const auto move_piece = [&](char* to, const char* from, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
      const size_t now = std::min(slice, bytes - at);
      std::memmove(to + at, from + at, now);
      at += now;
      moves(now);
    }
  };
  char* const to = target.data + target_offset;
  const char* const from = source.data + source_offset;
  for (const Piece& piece : pieces) move_piece(to + piece.target, from + piece.source, piece.size);
  if (!pieces.empty()) return;
  if (const auto* ids = reinterpret_cast<const int32_t*>(lookup.ids.data); ids != nullptr)
    for (size_t i = 0; i < counts[0]; ++i, moves(size)) look_up(lookup, from, ids[i], to + i * size);
  else
    for (size_t i = 0; i < counts[0]; ++i)
      for (size_t j = 0; j < counts[1]; ++j)
        move_piece(to + i * target_strides[0] + j * target_strides[1],
                   from + i * source_strides[0] + j * source_strides[1], size);
}

void copy_share(const Buffer& buffer, const std::vector<Piece>& pieces, size_t thread, size_t threads) {
  for (const Piece& piece : pieces) {
    const Range own = share_of(piece.size, thread, threads);
    std::memcpy(buffer.data + piece.target + own.begin, buffer.data + piece.source + own.begin, own.end - own.begin);
  }
}

}  // namespace helm
