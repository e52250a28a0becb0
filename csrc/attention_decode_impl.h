// Attention of one token over spans of caches, for the instruction set whose Simd was included before.
//
// Bound by reading K and V. Up to four query heads share each widened register. Blocks of sixteen positions are read
// where they are, and while one is, the one that comes next is asked for, be it of the next page, of V after K, or of K
// after V: hardware prefetchers stop there and ramp up again.
#pragma once
#include "attention_code_values_impl.h"

namespace helm {
namespace {

constexpr size_t kBlocks = kDecodeTile / kDecodeRows;
constexpr size_t kMostAhead = 8;  // blocks

// A place among the positions of a DecodeArgs.
struct Place {
  const KvSpan* span;
  size_t at;
};

// Goes on by `count` positions, to where there are more; there must be.
inline void advance(const DecodeArgs& a, Place& place, size_t count) {
  place.at += count;
  while (place.at >= seen(*place.span, a.limit)) place.at -= seen(*place.span, a.limit), ++place.span;
}

// A block of kDecodeRows positions, `stride` bytes apart.
struct Rows {
  Format format;
  const char* data;
  size_t stride, width;
  const char* ahead;  // what is read next of a cache, or null
};

// Where the positions of a tile are: its blocks, and those of the next tile that are asked for during this one.
struct Tile {
  Place places[kBlocks + kMostAhead];
  size_t count, blocks, next;  // positions, blocks, blocks of the next tile
};

// What decode keeps beside its running state.
struct Decode {
  const DecodeArgs& a;
  size_t stride, width;  // bytes of a row, found by divisions; values of a row of q, out and copies
  size_t ahead;          // blocks, so that they are kAhead bytes, or twice that of codes: these take longer a byte
  float *rows, *q, *out, *scores;
  Coded coded;  // of q8_0
};

inline Decode decode_layout(const DecodeArgs& a) {
  const bool coded = a.format == Format::q8_0;
  const size_t width = round_up(a.head_dim, kPanel), stride = row_size(a.format, a.head_dim);
  const size_t block = kDecodeRows * stride, bytes = coded ? 2 * kAhead : kAhead;
  const size_t ahead = smaller(kMostAhead, (bytes + block - 1) / block);
  float* q = a.scratch + (kDecodeRows + 2) * width;  // four blocks of codes and scales take more than one of f32
  float* out = q + a.group * width;
  float* scores = out + a.group * width;
  return {a,   stride, width, ahead, a.scratch, q, out, scores,
          coded ? coded_layout(a.head_dim, a.group, scores + a.group * kDecodeTile) : Coded{}};
}

template <const HeadCache* KvSpan::*kCaches>
inline const char* row_at(const Decode& s, const Place& place) {
  return rows_in((place.span->*kCaches)[s.a.kv_head], s.a.sequence, place.at, s.stride);
}

// A block of the cache, or null where it is not in one piece.
template <const HeadCache* KvSpan::*kCaches>
inline const char* block_in(const Decode& s, const Place& place) {
  return seen(*place.span, s.a.limit) - place.at >= kDecodeRows ? row_at<kCaches>(s, place) : nullptr;
}

// What is read `ahead` blocks after block `index` of a tile's keys and then values.
inline const char* block_after(const Decode& s, const Tile& tile, size_t index) {
  const size_t at = index + s.ahead;
  if (at < tile.blocks) return block_in<&KvSpan::keys>(s, tile.places[at]);
  if (at < 2 * tile.blocks) return block_in<&KvSpan::values>(s, tile.places[at - tile.blocks]);
  return at < 2 * tile.blocks + tile.next ? block_in<&KvSpan::keys>(s, tile.places[at - tile.blocks]) : nullptr;
}

// Block `block` of a tile's keys or values. It is used where it is, unless it is not full, or not in one piece, or rows
// are not whole registers: then in scratch, padded with zeros, codes as they are, all else as f32 [kDecodeRows][width].
// Four blocks of codes have places of their own.
template <const HeadCache* KvSpan::*kCaches>
inline Rows rows_of(const Decode& s, const Tile& tile, size_t block, const char* ahead) {
  Place place = tile.places[block];
  const bool coded = s.a.format == Format::q8_0;
  const size_t count = smaller(kDecodeRows, tile.count - block * kDecodeRows);
  const bool here = count == kDecodeRows && s.width == s.a.head_dim;
  const char* data = here ? block_in<kCaches>(s, place) : nullptr;
  if (data != nullptr) return {s.a.format, data, s.stride, s.width, ahead};
  const size_t stride = coded ? s.stride : s.width * sizeof(float);
  char* to = reinterpret_cast<char*>(s.rows) + (coded ? block % 4 * kDecodeRows * stride : 0);
  const Rows copy = {coded ? s.a.format : Format::f32, to, stride, s.width, coded ? ahead : nullptr};
  memset(to, 0, kDecodeRows * stride);
  for (size_t r = 0; r < count; ++r, to += stride) {
    const char* row = row_at<kCaches>(s, place);
    coded ? void(memcpy(to, row, stride)) : widen(s.a.format, row, s.a.head_dim, reinterpret_cast<float*>(to));
    if (r + 1 < count) advance(s.a, place, 1);
  }
  return copy;
}

// Asks for as many bytes as kRegisters registers of values take in a cache.
template <Format F, int kRegisters>
inline void ask(const char*& ahead) {
  if (ahead == nullptr) return;
  constexpr size_t bytes = kRegisters * Simd::lanes * size_of(F), lines = (bytes + kLine - 1) / kLine;
#pragma GCC unroll 16
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(ahead + i * bytes / lines);
  ahead += bytes;
}

// scores[g * kDecodeTile + r] of R rows from `first` on and G queries, R * G = lanes.
template <Format F, int R, int G>
void scores_tile(const Rows& rows, size_t first, const float* q, const char*& ahead, float* scores) {
  const size_t width = rows.width, stride = rows.stride;
  const char *data = rows.data + first * stride, *next = ahead;
  V acc[R * G];
#pragma GCC unroll 16
  for (V& sum : acc) sum = Simd::zero();
  for (size_t d = 0; d < width; d += Simd::lanes) {
    ask<F, R>(next);
    V query[G];
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) query[g] = Simd::load(q + g * width + d);
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const V row = load_as<F>(data + r * stride, d);
#pragma GCC unroll 16
      for (int g = 0; g < G; ++g) acc[g * R + r] = Simd::fma(row, query[g], acc[g * R + r]);
    }
  }
  ahead = next;
  float sums[R * G];
  Simd::store(sums, Simd::sums(acc));
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g) memcpy(scores + g * kDecodeTile + first, sums + g * R, R * sizeof(float));
}

template <Format F, int G>
void scores_block(const Rows& rows, const float* q, const char* ahead, float* scores) {
  constexpr int R = Simd::lanes / G;
  for (size_t r = 0; r < kDecodeRows; r += R) scores_tile<F, R, G>(rows, r, q, ahead, scores);
}

// Scores of a block against all queries, four, two or one at a time; the first ones ask for what comes next.
template <Format F>
void scores_of(const Rows& rows, const float* q, size_t group, float* scores) {
  size_t g = 0;
  const size_t width = rows.width;
  const auto ahead = [&] { return g == 0 ? rows.ahead : nullptr; };
  for (; g + 4 <= group; g += 4) scores_block<F, 4>(rows, q + g * width, ahead(), scores + g * kDecodeTile);
  for (; g + 2 <= group; g += 2) scores_block<F, 2>(rows, q + g * width, ahead(), scores + g * kDecodeTile);
  for (; g < group; ++g) scores_block<F, 1>(rows, q + g * width, ahead(), scores + g * kDecodeTile);
}

// out[g][d...] += sum over the block's rows of p[g][r] * rows[r][d...]: N registers of G heads.
template <Format F, int N, int G>
void weighted_columns(const Rows& rows, size_t d, const float* p, const char*& ahead, float* out) {
  const size_t width = rows.width, stride = rows.stride;
  const char *row = rows.data, *next = ahead;
  V acc[G][N];
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) acc[g][i] = Simd::load(out + g * width + d + i * Simd::lanes);
  for (size_t r = 0; r < kDecodeRows; ++r, row += stride) {
    ask<F, N>(next);
    V factor[G];
#pragma GCC unroll 16
    for (int g = 0; g < G; ++g) factor[g] = Simd::set(p[g * kDecodeTile + r]);
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) {
      const V value = load_as<F>(row, d + i * Simd::lanes);
#pragma GCC unroll 16
      for (int g = 0; g < G; ++g) acc[g][i] = Simd::fma(factor[g], value, acc[g][i]);
    }
  }
  ahead = next;
#pragma GCC unroll 16
  for (int g = 0; g < G; ++g)
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) Simd::store(out + g * width + d + i * Simd::lanes, acc[g][i]);
}

template <Format F, int G>
void weighted_block(const Rows& rows, const float* p, const char* ahead, float* out) {
  constexpr int N = kSums / G < 8 ? kSums / G : 8;
  size_t d = 0;
  for (; d + N * Simd::lanes <= rows.width; d += N * Simd::lanes) weighted_columns<F, N, G>(rows, d, p, ahead, out);
  for (; d < rows.width; d += Simd::lanes) weighted_columns<F, 1, G>(rows, d, p, ahead, out);
}

template <Format F>
void weighted_of(const Rows& rows, const float* p, size_t group, float* out) {
  size_t g = 0;
  const size_t width = rows.width;
  const auto ahead = [&] { return g == 0 ? rows.ahead : nullptr; };
  for (; g + 4 <= group; g += 4) weighted_block<F, 4>(rows, p + g * kDecodeTile, ahead(), out + g * width);
  for (; g + 2 <= group; g += 2) weighted_block<F, 2>(rows, p + g * kDecodeTile, ahead(), out + g * width);
  for (; g < group; ++g) weighted_block<F, 1>(rows, p + g * kDecodeTile, ahead(), out + g * width);
}

inline CodedRows coded_rows(const Rows& rows) { return {rows.data, rows.stride, rows.width, rows.ahead}; }

inline void scores(const Decode& s, const Rows& rows, float* out) {
  const size_t group = s.a.group;
  switch (rows.format) {
    case Format::f32: return scores_of<Format::f32>(rows, s.q, group, out);
    case Format::f16: return scores_of<Format::f16>(rows, s.q, group, out);
    case Format::bf16: return scores_of<Format::bf16>(rows, s.q, group, out);
    default: return coded_scores(coded_rows(rows), s.coded, group, out);
  }
}

inline void weighted(const Decode& s, const Rows& rows, const float* p) {
  const size_t group = s.a.group;
  switch (rows.format) {
    case Format::f32: return weighted_of<Format::f32>(rows, p, group, s.out);
    case Format::f16: return weighted_of<Format::f16>(rows, p, group, s.out);
    default: return weighted_of<Format::bf16>(rows, p, group, s.out);
  }
}

// A step of the running softmax: scores [group][kDecodeTile] become weights, `count` of them, zero to the end of a
// set of blocks.
inline void softmax_tile(const Decode& s, size_t count) {
  const DecodeArgs& a = s.a;
  for (size_t g = 0; g < a.group; ++g) {
    float* x = s.scores + g * kDecodeTile;
    const float max = largest_of(x, count, a.max[g]);
    const float keep = ratio(a.max[g], max);
    a.sum[g] = a.sum[g] * keep + exponentials(x, count, max);
    a.max[g] = max;
    for (size_t r = count; r < round_up(count, kSetRows); ++r) x[r] = 0;
    if (keep != 1.0f) scale(s.out + g * s.width, keep, s.width);
  }
}

inline Rows values_of(const Decode& s, const Tile& tile, size_t block) {
  return rows_of<&KvSpan::values>(s, tile, block, block_after(s, tile, tile.blocks + block));
}

// Two blocks from `block` on; one that ends a tile alone is there twice, once with weights of zero.
inline CodedSet set_of(const Decode& s, const Tile& tile, size_t block) {
  const CodedRows first = coded_rows(values_of(s, tile, block));
  const CodedRows second = block + 1 < tile.blocks ? coded_rows(values_of(s, tile, block + 1)) : first;
  return {{first, second}, s.scores + block * kDecodeRows};
}

inline void weigh_codes(const Decode& s, const Tile& tile) {
  CodedSet sets[2] = {set_of(s, tile, 0), {}};
  copy_scales(sets[0], s.coded);
  code_weights(sets[0].p, s.a.group, s.coded);
  for (size_t b = 0, index = 0; b < tile.blocks; b += 2, ++index) {
    CodedSet* next = b + 2 < tile.blocks ? &sets[(index + 1) % 2] : nullptr;
    if (next != nullptr) *next = set_of(s, tile, b + 2);
    coded_values(sets[index % 2], next, s.a.group, index, s.coded, s.out);
  }
}

inline void decode_tile(const Decode& s, const Tile& tile) {
  for (size_t b = 0; b < tile.blocks; ++b)
    scores(s, rows_of<&KvSpan::keys>(s, tile, b, block_after(s, tile, b)), s.scores + b * kDecodeRows);
  softmax_tile(s, tile.count);
  if (s.a.format == Format::q8_0) return weigh_codes(s, tile);
  for (size_t b = 0; b < tile.blocks; ++b) weighted(s, values_of(s, tile, b), s.scores + b * kDecodeRows);
}

// The next tile from `place`, which is moved behind it, unless nothing is `left` there.
inline Tile tile_at(const Decode& s, Place& place, size_t left) {
  Tile tile;
  tile.count = smaller(kDecodeTile, left);
  tile.blocks = round_up(tile.count, kDecodeRows) / kDecodeRows;
  tile.next = smaller(s.ahead, round_up(left - tile.count, kDecodeRows) / kDecodeRows);
  for (size_t b = 0; b < tile.blocks; ++b) {
    tile.places[b] = place;
    if ((b + 1) * kDecodeRows < left) advance(s.a, place, kDecodeRows);
  }
  Place next = place;
  for (size_t b = 0; b < tile.next; ++b) {
    tile.places[tile.blocks + b] = next;
    if (b + 1 < tile.next) advance(s.a, next, kDecodeRows);
  }
  return tile;
}

inline void begin_decode(const Decode& s) {
  const DecodeArgs& a = s.a;
  const float factor = 1.0f / sqrtf(static_cast<float>(a.head_dim));
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
  Place place{a.spans.begin(), 0};
  if (a.begin < a.end) advance(a, place, a.begin);
  for (size_t first = a.begin; first < a.end; first += kDecodeTile) decode_tile(s, tile_at(s, place, a.end - first));
  for (size_t g = 0; g < a.group; ++g)
    memcpy(a.out + g * a.head_dim, s.out + g * s.width, a.head_dim * sizeof(float));
}

}  // namespace
}  // namespace helm
