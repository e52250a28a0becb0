// Rows of caches (see cache_rows.h), for the instruction set whose Simd was included before.
#pragma once
#include "kernels/cache/compress_impl.h"
#include "kernels/elementwise/elementwise_impl.h"
#include "kernels/elementwise/transpose_impl.h"

namespace helm {
namespace {

constexpr size_t kGroupValues = 64;  // of a row, under one scale and minimum
constexpr size_t kCodeValues = 16;   // whose codes are 8 bytes
constexpr size_t kGroupHeader = 4;   // scale and minimum
constexpr size_t kTile = 16;         // tokens that are transposed together
constexpr size_t kTiles = 8;         // whose lines are written together: 256 bytes of f16
constexpr float kLargestF16 = 65504.0f;

// The largest f16 that is at most `value`. A group's minimum is rounded down, as no value may lie below it: quantising
// values that came out of a group would otherwise move them.
inline uint16_t floor_half(float value) {
  const uint16_t half = narrow_f16(value);
  if (widen_f16(half) <= value) return half;
  if (half & 0x8000u) return static_cast<uint16_t>(half + 1);
  return half == 0 ? uint16_t{0x8001} : static_cast<uint16_t>(half - 1);
}

// One group: `count` values, at least one, become scale, minimum and codes.
inline void compress_group(const float* values, size_t count, uint8_t* to) {
  const V top = Simd::set(kLargestF16), bottom = Simd::set(-kLargestF16);
  const size_t padded = round_up(count, kCodeValues);
  float x[kGroupValues];
  V least = top, most = bottom;
  for (size_t i = 0; i < padded; i += Simd::lanes) {
    const V v = i + Simd::lanes <= count
                    ? Simd::load(values + i)
                    : load_some(values + (i < count ? i : 0), i < count ? count - i : 0, values[0]);
    const V inside = Simd::min(Simd::max(v, bottom), top);
    least = Simd::min(least, inside), most = Simd::max(most, inside);
    Simd::store(x + i, inside);
  }
  const uint16_t low = floor_half(-Simd::largest(Simd::sub(Simd::zero(), least)));
  const float minimum = widen_f16(low);
  uint16_t scale = narrow_f16((Simd::largest(most) - minimum) / 15.0f);
  while (minimum + 15.0f * widen_f16(scale) > kLargestF16) --scale;
  memcpy(to, &scale, 2);
  memcpy(to + 2, &low, 2);
  const V magic = Simd::set(12582912.0f), step = Simd::set(scale == 0 ? 1.0f : widen_f16(scale));
  const V limit = Simd::set(scale == 0 ? 0.0f : 15.0f), base = Simd::set(minimum);
  for (size_t i = 0; i < padded; i += Simd::lanes) {
    const V code = Simd::sub(Simd::add(Simd::div(Simd::sub(Simd::load(x + i), base), step), magic), magic);
    Simd::store(x + i, Simd::min(code, limit));
  }
  for (size_t i = 0; i < padded; i += kCodeValues)
    for (size_t j = 0; j < 8; ++j)
      to[kGroupHeader + i / 2 + j] = static_cast<uint8_t>(static_cast<int>(x[i + j] + 16.0f * x[i + j + 8]));
}

void compress_row(const float* values, size_t width, void* row) {
  auto* to = static_cast<uint8_t*>(row);
  for (size_t first = 0; first < width; first += kGroupValues) {
    const size_t count = smaller(kGroupValues, width - first);
    compress_group(values + first, count, to);
    to += kGroupHeader + round_up(count, kCodeValues) / 2;
  }
}

// Sixteen values of a token, of which `count` are stored.
template <Format F>
inline void expand_codes(const uint8_t* codes, V scale, V minimum, size_t count, char* to) {
  V values[kVectors];
  Simd::nibbles(codes, values);
  char rest[kCodeValues * sizeof(float)];
  char* target = count < kCodeValues ? rest : to;
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) store_as<F>(target, i * Simd::lanes, Simd::fma(values[i], scale, minimum));
  if (count < kCodeValues) memcpy(to, rest, count * size_of(F));
}

// Scale and minimum of one group of up to kTile tokens.
struct Headers {
  float scales[kTile], minima[kTile];
};

inline Headers headers_of(const uint8_t* group, size_t stride, size_t tokens) {
  uint16_t scales[kTile] = {}, minima[kTile] = {};
  for (size_t t = 0; t < tokens; ++t) {
    memcpy(scales + t, group + t * stride, 2);
    memcpy(minima + t, group + t * stride + 2, 2);
  }
  Headers found;
  for (size_t i = 0; i < kTile; i += Simd::lanes) {
    Simd::store(found.scales + i, Simd::load_f16(scales + i));
    Simd::store(found.minima + i, Simd::load_f16(minima + i));
  }
  return found;
}

// The codes of a group of up to 16 tokens by the byte of their row, and under which scales and minima they are.
struct Turned {
  alignas(64) Bytes16 bytes[kGroupValues / 2];
  Headers headers;
};

inline void turn_codes(const uint8_t* group, size_t stride, size_t tokens, size_t bytes, Turned& to) {
  to.headers = headers_of(group, stride, tokens);
  for (size_t begin = 0; begin < bytes; begin += 16) {
    Bytes16* rows = to.bytes + begin;
    const size_t count = smaller(16, bytes - begin);
    const uint8_t* from = group + kGroupHeader + begin;
    if (tokens == kTile && count == 16) {
#pragma GCC unroll 16
      for (size_t t = 0; t < kTile; ++t) memcpy(rows + t, from + t * stride, 16);
    } else {
      memset(rows, 0, 16 * sizeof(Bytes16));
      for (size_t t = 0; t < tokens; ++t) memcpy(rows + t, from + t * stride, count);
    }
    transpose<16>(rows);
  }
}

// One byte of 16 tokens: two values of each, for two lines of the target.
template <Format F>
inline void expand_pair(const Turned& from, size_t byte, char* low, char* high) {
  V codes[2][kVectors];
  Simd::nibble_pairs(reinterpret_cast<const uint8_t*>(from.bytes + byte), codes[0], codes[1]);
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    const V scale = Simd::load(from.headers.scales + i * Simd::lanes);
    const V minimum = Simd::load(from.headers.minima + i * Simd::lanes);
    store_as<F>(low, i * Simd::lanes, Simd::fma(codes[0][i], scale, minimum));
    store_as<F>(high, i * Simd::lanes, Simd::fma(codes[1][i], scale, minimum));
  }
}

// The values of up to kTiles tiles side by side, so that lines of the target are filled at once.
template <Format F>
void expand_tiles(const Turned* tiles, size_t count, size_t bytes, char* target, size_t line) {
  for (size_t byte = 0; byte < bytes; ++byte) {
    char* low = target + (byte / 8 * kCodeValues + byte % 8) * line;
    for (size_t j = 0; j < count; ++j) {
      const size_t at = j * kTile * size_of(F);
      expand_pair<F>(tiles[j], byte, low + at, low + 8 * line + at);
    }
  }
}

// Past the caches: lines of a target at the strides of caches fall on each other there, and reading them before they
// are overwritten cost more than expanding them.
inline void copy_past_caches(const char* from, size_t size, char* to) {
  const size_t head = smaller(size, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  memcpy(to, from, head);
  size_t at = head;
  for (; at + kLine <= size; at += kLine) Simd::store_line(to + at, from + at);
  memcpy(to + at, from + at, size - at);
}

template <Format F>
void expand_turned(const TurnArgs& a) {
  constexpr size_t together = kTiles * kTile, line = together * size_of(F);
  Turned turned[kTiles];
  alignas(64) char part[kGroupValues * line];
  for (size_t p = 0; p < a.tokens; p += together) {
    const size_t tokens = smaller(together, a.tokens - p), tiles = (tokens + kTile - 1) / kTile;
    const auto* group = static_cast<const uint8_t*>(a.rows) + p * a.stride;
    for (size_t d = 0; d < a.width; d += kGroupValues) {
      const size_t count = smaller(kGroupValues, a.width - d), bytes = round_up(count, kCodeValues) / 2;
      char* to = static_cast<char*>(a.target) + d * a.target_stride + p * size_of(F);
      for (size_t j = 0; j < tiles; ++j)
        turn_codes(group + j * kTile * a.stride, a.stride, smaller(kTile, tokens - j * kTile), bytes, turned[j]);
      expand_tiles<F>(turned, tiles, bytes, part, line);
      for (size_t k = 0; k < count; ++k)
        copy_past_caches(part + k * line, tokens * size_of(F), to + k * a.target_stride);
      group += kGroupHeader + bytes;
    }
  }
  Simd::drain();
}

// Group by group of some tokens at a time: their rows stay in L1, and the inner loop has nothing to decide.
template <Format F>
void expand_straight(const TurnArgs& a) {
  for (size_t p = 0; p < a.tokens; p += kTile) {
    const size_t tokens = smaller(kTile, a.tokens - p);
    const auto* group = static_cast<const uint8_t*>(a.rows) + p * a.stride;
    char* to = static_cast<char*>(a.target) + p * a.target_stride;
    for (size_t d = 0; d < a.width; d += kGroupValues) {
      const size_t count = smaller(kGroupValues, a.width - d);
      const Headers headers = headers_of(group, a.stride, tokens);
      for (size_t t = 0; t < tokens; ++t) {
        const V scale = Simd::set(headers.scales[t]), minimum = Simd::set(headers.minima[t]);
        const uint8_t* codes = group + t * a.stride + kGroupHeader;
        char* row = to + t * a.target_stride + d * size_of(F);
        __builtin_prefetch(codes + kAhead);
        if (count == kGroupValues) {
#pragma GCC unroll 4
          for (size_t k = 0; k < kGroupValues; k += kCodeValues)
            expand_codes<F>(codes + k / 2, scale, minimum, kCodeValues, row + k * size_of(F));
        } else {
          for (size_t k = 0; k < count; k += kCodeValues)
            expand_codes<F>(codes + k / 2, scale, minimum, smaller(kCodeValues, count - k), row + k * size_of(F));
        }
      }
      group += kGroupHeader + round_up(count, kCodeValues) / 2;
    }
  }
}

template <Format F>
void expand_rows(const TurnArgs& a) {
  a.transposed ? expand_turned<F>(a) : expand_straight<F>(a);
}

// Plain rows of elements E, whose registers T hold N: blocks of a cache line by a cache line, through a copy of them,
// because lines at the strides of caches fall on each other in L1.
template <class T, class E, int N>
void turn_plain(const TurnArgs& a) {
  constexpr size_t block = kLine / sizeof(E);
  alignas(64) E in[block][block], out[block][block];
  memset(in, 0, sizeof(in));
  for (size_t p = 0; p < a.tokens; p += block)
    for (size_t d = 0; d < a.width; d += block) {
      const size_t tokens = smaller(block, a.tokens - p), count = smaller(block, a.width - d);
      const char* from = static_cast<const char*>(a.rows) + p * a.stride + d * sizeof(E);
      for (size_t t = 0; t < tokens; ++t) memcpy(in[t], from + t * a.stride, count * sizeof(E));
      for (size_t t = 0; t < tokens; t += N)
        for (size_t k = 0; k < count; k += N) {
          T rows[N];
          for (int i = 0; i < N; ++i) memcpy(&rows[i], &in[t + i][k], sizeof(T));
          transpose<N>(rows);
          for (int i = 0; i < N; ++i) memcpy(&out[k + i][t], &rows[i], sizeof(T));
        }
      char* to = static_cast<char*>(a.target) + d * a.target_stride + p * sizeof(E);
      for (size_t k = 0; k < count; ++k) memcpy(to + k * a.target_stride, out[k], tokens * sizeof(E));
    }
}

void turn_rows(const TurnArgs& a) {
  if (a.groups) {
    if (a.format == Format::f32) expand_rows<Format::f32>(a);
    if (a.format == Format::f16) expand_rows<Format::f16>(a);
    if (a.format == Format::bf16) expand_rows<Format::bf16>(a);
  } else if (a.transposed) {
    size_of(a.format) == 4 ? turn_plain<Words4, uint32_t, 4>(a) : turn_plain<Halves8, uint16_t, 8>(a);
  } else {
    for (size_t t = 0; t < a.tokens; ++t)
      memcpy(static_cast<char*>(a.target) + t * a.target_stride, static_cast<const char*>(a.rows) + t * a.stride,
             a.width * size_of(a.format));
  }
}

}  // namespace
}  // namespace helm
