// Attention of one token over spans of caches, for the instruction set whose Simd was included before.
//
// Bound by reading K and V. Blocks of sixteen positions are read where they are.
#pragma once
#include "kernels/attention/attention_code_values_impl.h"
#include "kernels/attention/attention_rows_impl.h"

namespace helm {
namespace {

// What decode keeps beside its running state.
struct Decode {
  const DecodeArgs& a;
  size_t stride, width;  // bytes of a row, found by divisions; values of a row of q, out and copies
  ptrdiff_t ahead;       // bytes
  float *rows, *q, *out, *scores;
  Coded coded;  // of q8_0

  // More than can be of use soon.
  HELM_INLINE bool enough(const Asking& asking) const { return asking.ahead() > 2 * ahead; }
  // For what is `here` anyway, if nothing else.
  HELM_INLINE Lines part(Asking& asking, const char* here, size_t bytes, size_t steps) const {
    return enough(asking) ? Lines{here} : asking.part(bytes, steps);
  }
};

// How many bytes ahead codes are asked for, which take longer a byte than values.
constexpr size_t kCodesAhead = 8192;

inline Decode decode_layout(const DecodeArgs& a) {
  const bool coded = a.format == Format::q8_0;
  const size_t width = round_up(a.head_dim, kPanel), stride = row_size(a.format, a.head_dim);
  float* q = a.scratch + (kDecodeRows + 2) * width;  // four blocks of codes and scales take more than one of f32
  float* out = q + a.group * width;
  float* scores = out + a.group * width;
  return {a,
          stride,
          width,
          static_cast<ptrdiff_t>(coded ? kCodesAhead : kAhead),
          a.scratch,
          q,
          out,
          scores,
          coded ? coded_layout(a.head_dim, stride, a.group, scores + a.group * kDecodeTile, a.max) : Coded{}};
}

// The keys or values of a block to scratch, padded with zeros: codes as they are, all else as f32 [kDecodeRows][width].
// Blocks of codes have four places by turns.
__attribute__((noinline)) Rows copied(const Decode& s, const Reading& from, size_t block) {
  const bool coded = s.a.format == Format::q8_0;
  const size_t stride = coded ? s.stride : s.width * sizeof(float), count = from.count();
  char* to = reinterpret_cast<char*>(s.rows) + (coded ? block % 4 * kDecodeRows * stride : 0);
  const Rows copy = {coded ? s.a.format : Format::f32, to, stride, s.width};
  memset(to, 0, kDecodeRows * stride);
  Place place = from.place();
  for (size_t r = 0; r < count; ++r, to += stride) {
    const char* row = row_at(s.a, from.values(), place, s.stride);
    coded ? void(memcpy(to, row, stride)) : widen(s.a.format, row, s.a.head_dim, reinterpret_cast<float*>(to));
    if (r + 1 < count) advance(s.a, place, 1);
  }
  return copy;
}

// Block `block` of a tile's keys or values. They are used where they are, unless the block is not in one piece, or rows
// are not whole registers, or codes of a block that is not full.
HELM_INLINE Rows rows_of(const Decode& s, const Reading& from, size_t block) {
  const size_t least = s.a.format == Format::q8_0 ? kDecodeRows : from.count();
  const char* here = s.width == s.a.head_dim ? from.here(least) : nullptr;
  return here == nullptr ? copied(s, from, block) : Rows{s.a.format, here, s.stride, s.width, least};
}

inline void scores(const Decode& s, const Rows& rows, Lines ahead, float* out) {
  const size_t group = s.a.group;
  switch (rows.format) {
    case Format::f32:
      return scores_of<Format::f32>(rows, s.q, group, ahead, out);
    case Format::f16:
      return scores_of<Format::f16>(rows, s.q, group, ahead, out);
    case Format::bf16:
      return scores_of<Format::bf16>(rows, s.q, group, ahead, out);
    default:
      return coded_scores(rows.data, s.coded, ahead, out);
  }
}

inline void weighted(const Decode& s, const Rows& rows, Lines ahead, const float* p) {
  const size_t group = s.a.group;
  switch (rows.format) {
    case Format::f32:
      return weighted_of<Format::f32>(rows, p, group, ahead, s.out);
    case Format::f16:
      return weighted_of<Format::f16>(rows, p, group, ahead, s.out);
    default:
      return weighted_of<Format::bf16>(rows, p, group, ahead, s.out);
  }
}

// To maxima with those of a tile's scores [group][kDecodeTile], `count` of them and then lowest to the end of a set of
// blocks: sums and outputs so far become relative to them.
inline void raise_maxima(const Decode& s, size_t count) {
  const DecodeArgs& a = s.a;
  for (size_t g = 0; g < a.group; ++g) {
    float* x = s.scores + g * kDecodeTile;
    for (size_t r = count; r < round_up(count, kSetRows); ++r) x[r] = kLowest;
    const float max = largest_of(x, round_up(count, kSetRows), a.max[g]), keep = ratio(a.max[g], max);
    a.max[g] = max, a.sum[g] *= keep;
    if (keep != 1.0f) scale(s.out + g * s.width, keep, s.width);
  }
}

// Scores become weights, zero to the end of a block.
inline void softmax_tile(const Decode& s, size_t count) {
  raise_maxima(s, count);
  for (size_t g = 0; g < s.a.group; ++g) {
    float* x = s.scores + g * kDecodeTile;
    s.a.sum[g] += exponentials(x, count, s.a.max[g]);
    for (size_t r = count; r < round_up(count, kDecodeRows); ++r) x[r] = 0;
  }
}

// The two blocks of values that follow, where a tile ends before `after` positions; one that ends it alone is there
// twice, once with weights of zero.
HELM_INLINE CodedSet next_set(const Decode& s, Reading& from, size_t after, size_t index) {
  const float* scores = s.scores + index * kSetRows;
  const char* first = rows_of(s, from, 2 * index).data;
  from.go_on();
  if (from.left() == after) return {first, first, scores};
  const char* second = rows_of(s, from, 2 * index + 1).data;
  from.go_on();
  return {first, second, scores};
}

inline void weigh_codes(const Decode& s, Reading& from, size_t count, Asking& ahead) {
  const size_t after = from.left() - count, sets = round_up(count, kSetRows) / kSetRows, group = s.a.group;
  raise_maxima(s, count);
  memset(s.coded.sums, 0, group * Simd::lanes * sizeof(float));
  CodedSet set = next_set(s, from, after, 0);
  copy_scales(set, s.coded);
  code_weights(set.scores, 0, s.coded);
  for (size_t index = 0; index < sets; ++index) {
    const bool more = index + 1 < sets;
    const CodedSet next = more ? next_set(s, from, after, index + 1) : set;
    coded_values(set, more ? &next : nullptr, index, s.coded, s.enough(ahead) ? nullptr : &ahead, s.out);
    ahead.read(kSetRows * s.stride);
    set = next;
  }
  for (size_t g = 0; g < group; ++g) s.a.sum[g] += Simd::sum(Simd::load(s.coded.sums + g * Simd::lanes));
}

inline void weigh_rows(const Decode& s, Reading& from, size_t count, Asking& ahead) {
  const size_t bytes = kDecodeRows * s.stride;
  softmax_tile(s, count);
  for (size_t block = 0; block * kDecodeRows < count; ++block, from.go_on()) {
    const Rows rows = rows_of(s, from, block);
    weighted(s, rows, s.part(ahead, rows.data, bytes, bytes), s.scores + block * kDecodeRows);
    ahead.read(bytes);
  }
}

inline void decode_tile(const Decode& s, Reading& from, Asking& ahead) {
  Reading values = from.of_values();
  const bool coded = s.a.format == Format::q8_0;
  const size_t count = smaller(kDecodeTile, from.left()), bytes = kDecodeRows * s.stride;
  const size_t steps = coded ? asked_by_keys(s.coded) : bytes;
  for (size_t block = 0; block * kDecodeRows < count; ++block, from.go_on()) {
    const Rows rows = rows_of(s, from, block);
    scores(s, rows, s.part(ahead, rows.data, bytes, steps), s.scores + block * kDecodeRows);
    ahead.read(bytes);
  }
  for (size_t g = 0; s.a.scoring.softcap > 0 && g < s.a.group; ++g)
    cap_scores(s.scores + g * kDecodeTile, round_up(count, Simd::lanes), s.a.scoring.softcap);
  coded ? weigh_codes(s, values, count, ahead) : weigh_rows(s, values, count, ahead);
}

inline void begin_decode(const Decode& s) {
  const DecodeArgs& a = s.a;
  const float factor = a.scoring.factor;
  memset(s.q, 0, 2 * a.group * s.width * sizeof(float));
  for (size_t g = 0; g < a.group; ++g) {
    for (size_t d = 0; d < a.head_dim; ++d) s.q[g * s.width + d] = a.q[g * a.head_dim + d] * factor;
    if (a.resume) {
      memcpy(s.out + g * s.width, a.out + g * a.head_dim, a.head_dim * sizeof(float));
    } else {
      a.max[g] = kLowest;
      a.sum[g] = 0;
    }
  }
  if (a.format == Format::q8_0) code_queries(s.q, a.head_dim, a.group, s.coded);
}

void decode(const DecodeArgs& a) {
  const Decode s = decode_layout(a);
  begin_decode(s);
  if (a.begin < a.end) {
    Way way(a, s.stride);
    Asking ahead(way);
    ahead.part(s.ahead, 0);
    for (Reading from(a, s.stride, false, place_at(a, a.begin), a.end - a.begin); from.left() > 0;)
      decode_tile(s, from, ahead);
  }
  for (size_t g = 0; g < a.group; ++g) memcpy(a.out + g * a.head_dim, s.out + g * s.width, a.head_dim * sizeof(float));
}

}  // namespace
}  // namespace helm
