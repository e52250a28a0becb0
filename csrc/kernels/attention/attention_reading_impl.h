// What decode attention reads of a cache, and how it asks for that ahead, for the instruction set whose Simd was
// included before.
//
// Hardware prefetchers stop at pages of memory, at pages of caches, at V after K and at K after V, and ramp up again.
// So what is read next, wherever it is, is asked for evenly: a dozen lines can be under way, and memory rests while
// none is.
#pragma once
#include "kernels/attention/attention_impl.h"

namespace helm {
namespace {

// A place among the positions of a DecodeArgs.
struct Place {
  const KvSpan* span;
  size_t at;
};

inline size_t rest_of_span(const DecodeArgs& a, const Place& place) { return seen(*place.span, a.limit) - place.at; }

// Goes on by `count` positions, to where there are more; there must be.
HELM_INLINE void advance(const DecodeArgs& a, Place& place, size_t count) {
  place.at += count;
  while (place.at >= seen(*place.span, a.limit)) place.at -= seen(*place.span, a.limit), ++place.span;
}

inline Place place_at(const DecodeArgs& a, size_t position) {
  Place place{a.spans.begin(), 0};
  advance(a, place, position);
  return place;
}

HELM_INLINE const HeadCache& head_in(const DecodeArgs& a, bool values, const KvSpan& span) {
  return (values ? span.values : span.keys)[a.kv_head];
}

HELM_INLINE const char* row_at(const DecodeArgs& a, bool values, const Place& place, size_t stride) {
  return rows_in(*place.span, head_in(a, values, *place.span), a.sequence, place.at, stride);
}

// A way through what a decode reads: of each tile keys, then values, in pieces that are contiguous; at its end the
// first piece of the next head, so that memory does not rest between two heads.
class Way {
 public:
  Way(const DecodeArgs& a, size_t stride) : a_(a), stride_(stride), rest_(a.end - a.begin) {}

  struct Piece {
    const char* data;
    size_t bytes;
  };

  // The next piece; of no bytes behind the last one.
  Piece next() {
    if (left_ > 0)
      advance(a_, place_, count_);
    else if (!turn())
      return beyond();
    count_ = smaller(left_, rest_of_span(a_, place_));
    left_ -= count_;
    ask_for_spans();
    return {row_at(a_, values_, place_, stride_), count_ * stride_};
  }

 private:
  // Where spans are is not in a cache either when they are short.
  HELM_INLINE void ask_for_spans() const {
    const KvSpan* soon = place_.span + 2;
    if (soon < a_.spans.end()) __builtin_prefetch(&head_in(a_, values_, *soon));
    __builtin_prefetch(place_.span + 6);
  }
  Piece beyond() {
    if (over_ || !a_.goes_on) return {nullptr, 0};
    over_ = true;
    const Place first = place_at(a_, 0);
    const HeadCache& keys = first.span->keys[a_.kv_head + 1];
    return {rows_in(*first.span, keys, a_.sequence, first.at, stride_), rest_of_span(a_, first) * stride_};
  }
  // To a tile's values after its keys, or to the next tile.
  bool turn() {
    if (values_ && rest_ == 0) return false;
    if (!values_) {
      place_ = tile_;
    } else {
      begun_ ? advance(a_, place_, count_) : void(place_ = place_at(a_, a_.begin));
      begun_ = true;
      tile_ = place_;
      of_tile_ = smaller(kDecodeTile, rest_);
      rest_ -= of_tile_;
    }
    values_ = !values_;
    left_ = of_tile_;
    return true;
  }

  const DecodeArgs& a_;
  size_t stride_, rest_;                       // positions of tiles after this one
  size_t of_tile_ = 0, left_ = 0, count_ = 0;  // positions of a tile; after this piece; of it
  Place tile_ = {}, place_ = {};
  bool values_ = true, begun_ = false, over_ = false;
};

// Lines from `next` on, which are asked for in steps.
struct Lines {
  const char* next;

  template <size_t kBytes>
  HELM_INLINE void ask() {
#pragma GCC unroll 16
    for (size_t at = 0; at < kBytes; at += kLine) __builtin_prefetch(next + at);
    next += kBytes;
  }
  void ask(size_t bytes) {
    for (const char* end = next + bytes; next < end; next += kLine) __builtin_prefetch(next);
  }
};

constexpr size_t kMemoryPage = 4096;

// Asks for what is read next, part by part; for what is at hand when there is nothing more.
class Asking {
 public:
  explicit Asking(Way& way) : way_(way), following_(way.next()) { begin(); }

  // The next `bytes`, of which the last `steps` are left to steps of the caller; others are asked for at once. They are
  // in one piece, as blocks mostly are.
  HELM_INLINE Lines part(size_t bytes, size_t steps) {
    if (next_ + bytes > end_ && !pass(bytes)) return {piece_.data};
    Lines part{next_};
    next_ += bytes;
    for (; steps < bytes; steps += kLine) part.ask<kLine>();
    return part;
  }

  // Bytes were read: what was asked for beyond them is ahead.
  HELM_INLINE void read(size_t bytes) { asked_ -= static_cast<ptrdiff_t>(bytes); }
  HELM_INLINE ptrdiff_t ahead() const { return asked_ - (end_ - next_); }

 private:
  // To a piece of that size, asking for smaller ones at once; whether there was one before they were as many bytes.
  __attribute__((noinline)) bool pass(size_t bytes) {
    for (size_t passed = 0; next_ + bytes > end_; begin()) {
      if (passed >= bytes) return false;
      passed += end_ - next_;
      Lines{next_}.ask(end_ - next_);
    }
    return true;
  }
  // To the next piece. The one after it begins to come: memory's tables are slow where addresses jump.
  void begin() {
    if (following_.bytes > 0) piece_ = following_;
    following_ = way_.next();
    const size_t first = kMemoryPage - reinterpret_cast<uintptr_t>(following_.data) % kMemoryPage;
    __builtin_prefetch(following_.data);
    if (first < following_.bytes) __builtin_prefetch(following_.data + first);
    next_ = piece_.data, end_ = next_ + piece_.bytes;
    asked_ += static_cast<ptrdiff_t>(piece_.bytes);
  }

  Way& way_;
  Way::Piece piece_ = {}, following_;
  const char *next_, *end_;
  ptrdiff_t asked_ = 0;  // bytes, once end_ is reached
};

// Blocks of kDecodeRows positions one after the other: of a decode's keys or values those from `place` on, of which
// `left` are to be read.
class Reading {
 public:
  Reading(const DecodeArgs& a, size_t stride, bool values, const Place& place, size_t left)
      : a_(a), stride_(stride), values_(values), place_(place), left_(left) {
    enter();
  }

  bool values() const { return values_; }
  const Place& place() const { return place_; }
  size_t left() const { return left_; }
  size_t count() const { return smaller(kDecodeRows, left_); }
  // The block where it is, or null where it does not begin with `rows` in one piece.
  HELM_INLINE const char* here(size_t rows) const { return in_piece_ >= rows ? data_ : nullptr; }
  HELM_INLINE void go_on() {
    if (in_piece_ < 2 * kDecodeRows) return go_far();
    place_.at += kDecodeRows, data_ += kDecodeRows * stride_;
    in_piece_ -= kDecodeRows, left_ -= kDecodeRows;
  }
  Reading of_values() const { return Reading(a_, stride_, true, place_, left_); }

 private:
  void enter() {
    in_piece_ = smaller(left_, rest_of_span(a_, place_));
    data_ = row_at(a_, values_, place_, stride_);
  }
  __attribute__((noinline)) void go_far() {
    const size_t read = count();
    left_ -= read;
    if (left_ == 0) return;
    advance(a_, place_, read);
    enter();
  }

  const DecodeArgs& a_;
  size_t stride_;
  bool values_;
  Place place_;
  size_t left_, in_piece_;
  const char* data_;
};

}  // namespace
}  // namespace helm
