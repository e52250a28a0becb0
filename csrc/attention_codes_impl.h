// Decode attention over blocks of q8_0 rows, multiplied as they are stored, for the instruction set whose Simd was
// included before.
//
// Bound by arithmetic if codes become f32. Queries, and weights times the scales of values, are 16-bit integers: a
// product of two of them with two codes and its sum take one instruction or two, and sums of a block are exact. Up to
// four query heads share what is taken apart. Registers are seen as parts of 16 bytes, within which shuffles are cheap.
#pragma once
#include "attention_impl.h"

namespace helm {
namespace {

constexpr size_t kCodedUnit = 4 * Simd::lanes;  // codes in a register
constexpr size_t kPart = 16;                    // bytes
constexpr size_t kQueryWords = 4 * Simd::lanes; // of a query against a quarter of a unit
constexpr size_t kRowPairs = kDecodeRows / 2;
constexpr int kQuad = 4;                        // rows whose codes are interleaved: 32 bits of each in a part
constexpr size_t kQuads = kDecodeRows / kQuad;

typedef int16_t CodeWords __attribute__((vector_size(4 * Simd::lanes)));
typedef int32_t CodePairs __attribute__((vector_size(4 * Simd::lanes)));
typedef uint16_t ScaleHalves __attribute__((vector_size(16)));
typedef float FourRows __attribute__((vector_size(4 * Simd::lanes)));

template <size_t... i>
struct Indices {};
template <size_t n, size_t... i>
struct IndicesTo : IndicesTo<n - 1, n - 1, i...> {};
template <size_t... i>
struct IndicesTo<0, i...> {
  using Type = Indices<i...>;
};

// Where element i of an interleaving of a and b comes from: within each part, runs of kRun elements of their low or
// high halves by turns. An index of at least kCount is b's.
template <size_t kCount, size_t kInPart, size_t kPiece, bool kHigh>
constexpr size_t interleaved_at(size_t i) {
  const size_t part = i / kInPart, piece = i % kInPart / kPiece;
  return part * kInPart + (piece / 2 + (kHigh ? kInPart / kPiece / 2 : 0)) * kPiece + i % kPiece + piece % 2 * kCount;
}

template <size_t kPiece, bool kHigh, class T, size_t... i>
HELM_INLINE T interleaved(T a, T b, Indices<i...>) {
  constexpr size_t count = sizeof...(i), in_part = count * kPart / sizeof(T);
  return __builtin_shufflevector(a, b, interleaved_at<count, in_part, kPiece, kHigh>(i)...);
}

template <size_t kPiece, bool kHigh, class T>
HELM_INLINE T interleaved(T a, T b) {
  return interleaved<kPiece, kHigh>(a, b, typename IndicesTo<sizeof(T) / sizeof(a[0])>::Type());
}

// Register `kIndex` of the parts of two, taken by turns.
template <size_t kIndex, size_t... i>
HELM_INLINE CodePairs parts_by_turns(CodePairs a, CodePairs b, Indices<i...>) {
  constexpr size_t n = Simd::lanes;
  return __builtin_shufflevector(a, b, ((kIndex * n + i) / 8 * 4 + i % 4 + (i / 4 + kIndex * (n / 4)) % 2 * n)...);
}

// Lines of what is read next, asked for evenly over some steps.
struct Asking {
  const char* next;
  size_t lines;  // of a step

  HELM_INLINE void step() { ask(lines); }
  HELM_INLINE void ask(size_t count) {
    for (; count > 0; --count, next += kLine) __builtin_prefetch(next);
  }
};

// What does not divide evenly is asked for at once.
inline Asking asking(const char* ahead, size_t bytes, size_t steps) {
  const size_t lines = ahead == nullptr ? 0 : (bytes + kLine - 1) / kLine;
  Asking found{ahead, lines / steps};
  found.ask(lines % steps);
  return found;
}

// What decode keeps beside coded rows. Queries as words for scores: of each unit of columns and quarter of its parts two
// registers, of the columns that are even and odd in their order, each repeated for kQuad rows; and, as codes of even
// columns are read 128 too high, what that adds to the sums of each part, negative. Weights times scales of a block as
// words under one scale per query head. Blocks of columns are rounded up to four.
struct Coded {
  size_t units, blocks;
  int16_t* words;        // [group / 4][units][4][4][2][lanes][2]
  int32_t* excess;       // [group / 4][units][4][lanes]
  int32_t* pairs;        // [group / 4][blocks][4][kDecodeRows / 2]
  float* query_scales;   // [group]
  float* weight_scales;  // [group]
  uint16_t* halves;      // scales of a block of rows: of keys [kDecodeRows / 4][blocks][2][4], of values [blocks][kDecodeRows]

  // For query heads from `g` on.
  Coded from(size_t g) const {
    const size_t four = g / 4, one = g % 4;
    return {units, blocks, words + (four * units * 16 + one) * kQueryWords, excess + (four * units * 4 + one) * Simd::lanes,
            pairs + (four * blocks * 4 + one) * kRowPairs, query_scales + g, weight_scales + g, halves};
  }
};

inline Coded coded_layout(size_t width, size_t group, float* scratch) {
  const size_t units = width / kCodedUnit, blocks = round_up(width, 4 * kScaled) / kScaled, fours = (group + 3) / 4;
  const auto take = [&](size_t floats) { return scratch += floats, scratch - floats; };
  Coded c = {units, blocks, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};
  c.words = reinterpret_cast<int16_t*>(take(fours * units * 16 * kQueryWords / 2));
  c.excess = reinterpret_cast<int32_t*>(take(fours * units * 4 * Simd::lanes));
  c.pairs = reinterpret_cast<int32_t*>(take(fours * blocks * 4 * kRowPairs));
  c.halves = reinterpret_cast<uint16_t*>(take(blocks * kDecodeRows));
  c.query_scales = take(group);
  c.weight_scales = take(group);
  return c;
}

constexpr float kCodedMost = 32767.0f;
constexpr float kCodedLeast = 1e-30f;  // what is smaller is zero: its inverse is no number

// What brings the largest to kCodedMost.
inline float word_factor(float largest) { return largest >= kCodedLeast ? kCodedMost / largest : 0.0f; }

inline V whole_part(V x, V factor) {
  const V magic = Simd::set(12582912.0f);
  return Simd::sub(Simd::fma(x, factor, magic), magic);
}

// Query head `g`, q[width].
inline void code_query(const float* q, size_t width, const Coded& to, size_t g) {
  const Coded own = to.from(g);
  V most = Simd::zero();
  for (size_t d = 0; d < width; d += Simd::lanes) {
    const V v = Simd::load(q + d);
    most = Simd::max(most, Simd::max(v, Simd::sub(Simd::zero(), v)));
  }
  const float largest = Simd::largest(most);
  const V factor = Simd::set(word_factor(largest));
  *own.query_scales = largest / kCodedMost;
  for (size_t part = 0; part < width / kPart; ++part) {
    int16_t words[kPart];
    for (size_t d = 0; d < kPart; d += Simd::lanes)
      Simd::store_whole(words + d, whole_part(Simd::load(q + part * kPart + d), factor));
    const size_t unit = part * kPart / kCodedUnit, at = part % (kCodedUnit / kPart) * kQuad;
    int32_t even = 0;
    for (size_t c = 0; c < 4; ++c) {
      int16_t* quarter = own.words + (unit * 4 + c) * 4 * kQueryWords + 2 * at;
      for (size_t r = 0; r < kQuad; ++r)
        for (size_t odd = 0; odd < 2; ++odd)
          for (size_t k = 0; k < 2; ++k)
            quarter[odd * 2 * Simd::lanes + 2 * r + k] = words[4 * c + 2 * k + odd];
      even += words[4 * c] + words[4 * c + 2];
    }
    for (size_t r = 0; r < kQuad; ++r) own.excess[unit * 4 * Simd::lanes + at + r] = -128 * even;
  }
}

// Rows of a cache in one piece: codes, then scales.
struct CodedRows {
  const char* data;
  size_t stride, width;

  HELM_INLINE const char* row(size_t r) const { return data + r * stride; }
  size_t blocks() const { return width / kScaled; }
};

// Up to four scales of a row from block `block` on.
HELM_INLINE ScaleHalves row_scales(const CodedRows& rows, size_t row, size_t block) {
  typedef uint64_t Two __attribute__((vector_size(16)));
  const char* from = rows.row(row) + rows.width + 2 * block;
  uint64_t bits = 0;
  if (block + 4 <= rows.blocks())
    memcpy(&bits, from, 8);
  else
    for (size_t b = rows.blocks() - block; b-- > 0;) {
      uint16_t half;
      memcpy(&half, from + 2 * b, 2);
      bits = bits << 16 | half;
    }
  return reinterpret_cast<ScaleHalves>(Two{bits, 0});
}

// The scales of blocks [block, block + 4) of four rows, as many as there are: two registers of two blocks each.
HELM_INLINE void scales_of(const CodedRows& rows, size_t row, size_t block, ScaleHalves* two) {
  typedef uint32_t Words4 __attribute__((vector_size(16)));
  const auto low = [](ScaleHalves a, ScaleHalves b) HELM_LAMBDA {
    return reinterpret_cast<Words4>(__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
  };
  const Words4 a = low(row_scales(rows, row, block), row_scales(rows, row + 1, block));
  const Words4 b = low(row_scales(rows, row + 2, block), row_scales(rows, row + 3, block));
  two[0] = reinterpret_cast<ScaleHalves>(__builtin_shufflevector(a, b, 0, 4, 1, 5));
  two[1] = reinterpret_cast<ScaleHalves>(__builtin_shufflevector(a, b, 2, 6, 3, 7));
}

// For scores: the scales of four rows twice.
inline void spread_scales(const CodedRows& rows, uint16_t* halves) {
  for (size_t r = 0; r < kDecodeRows; r += kQuad)
    for (size_t b = 0; b < rows.blocks(); b += 4) {
      ScaleHalves two[2];
      scales_of(rows, r, b, two);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i, halves += 16) {
        const ScaleHalves first = __builtin_shufflevector(two[i], two[i], 0, 1, 2, 3, 0, 1, 2, 3);
        const ScaleHalves second = __builtin_shufflevector(two[i], two[i], 4, 5, 6, 7, 4, 5, 6, 7);
        memcpy(halves, &first, 16), memcpy(halves + 8, &second, 16);
      }
    }
}

// For weights.
inline void turn_scales(const CodedRows& rows, uint16_t* halves) {
  for (size_t r = 0; r < kDecodeRows; r += kQuad)
    for (size_t b = 0; b < rows.blocks(); b += 4) {
      ScaleHalves two[2];
      scales_of(rows, r, b, two);
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i)
        memcpy(halves + (b + i) * kDecodeRows + r, reinterpret_cast<const char*>(two) + 8 * i, 8);
    }
}

// A unit of four rows: register c has in each part the c-th 32 bits of that part of all four.
HELM_INLINE void load_quad(const CodedRows& rows, size_t row, size_t column, CodePairs* turned) {
  CodePairs r[kQuad];
#pragma GCC unroll 4
  for (int i = 0; i < kQuad; ++i) memcpy(&r[i], rows.row(row + i) + column, sizeof(CodePairs));
  const CodePairs a = interleaved<1, false>(r[0], r[1]), b = interleaved<1, false>(r[2], r[3]);
  const CodePairs c = interleaved<1, true>(r[0], r[1]), d = interleaved<1, true>(r[2], r[3]);
  turned[0] = interleaved<2, false>(a, b), turned[1] = interleaved<2, true>(a, b);
  turned[2] = interleaved<2, false>(c, d), turned[3] = interleaved<2, true>(c, d);
}

// Sums of products of a unit of four rows and G queries: lane 4p + r of row r over part p.
template <int G>
HELM_INLINE void quad_sums(const CodePairs* turned, const int16_t* words, const int32_t* excess, I* sums) {
  I odds[G];
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) sums[g] = Simd::words(excess + g * Simd::lanes), odds[g] = Simd::every(0);
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c, words += 4 * kQueryWords) {
    const auto codes = reinterpret_cast<CodeWords>(turned[c]);
    const I even = reinterpret_cast<I>((codes ^ 128) & 255), odd = reinterpret_cast<I>(codes >> 8);
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      sums[g] = Simd::dot(sums[g], even, Simd::words(words + g * kQueryWords));
      odds[g] = Simd::dot(odds[g], odd, Simd::words(words + g * kQueryWords + kQueryWords / 2));
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) sums[g] = Simd::add_counts(sums[g], odds[g]);
}

// Parts 0 and 1 of a, 2 and 3, and so on, then those of b, added.
template <size_t... i>
HELM_INLINE FourRows neighbours(FourRows a, FourRows b, Indices<i...>) {
  return __builtin_shufflevector(a, b, (i / 4 * 8 + i % 4)...) + __builtin_shufflevector(a, b, (i / 4 * 8 + 4 + i % 4)...);
}

// Scores of a block from the sums of the parts of its quads.
HELM_INLINE void put_scores(FourRows* quads, float scale, float* scores) {
  constexpr size_t parts = Simd::lanes / kQuad;
#pragma GCC unroll 2
  for (size_t n = kQuads; n > kQuads / parts; n /= 2)
#pragma GCC unroll 2
    for (size_t i = 0; i < n / 2; ++i)
      quads[i] = neighbours(quads[2 * i], quads[2 * i + 1], typename IndicesTo<Simd::lanes>::Type());
#pragma GCC unroll 4
  for (size_t i = 0; i < kQuads / parts; ++i) quads[i] *= scale;
  memcpy(scores, quads, kDecodeRows * sizeof(float));
}

// scores[g * kDecodeTile + r] of a block against G queries.
template <int G>
void coded_scores_block(const CodedRows& rows, const Coded& q, const char* next, float* scores) {
  const size_t units = q.units;
  Asking ahead = asking(next, kDecodeRows * rows.stride, kDecodeRows / kQuad * units);
  const uint16_t* halves = q.halves;
  FourRows quads[G][kQuads];
  for (size_t quad = 0; quad < kQuads; ++quad, halves += q.blocks * 8) {
    const int16_t* words = q.words;
    const int32_t* excess = q.excess;
    V total[G];
#pragma GCC unroll 4
    for (V& sum : total) sum = Simd::zero();
    for (size_t unit = 0; unit < units; ++unit, words += 16 * kQueryWords, excess += 4 * Simd::lanes) {
      ahead.step();
      CodePairs turned[4];
      load_quad(rows, quad * kQuad, unit * kCodedUnit, turned);
      I sums[G];
      quad_sums<G>(turned, words, excess, sums);
      const V scale = Simd::load_f16(halves + unit * kCodedUnit / kScaled * 8);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) total[g] = Simd::fma(Simd::floats(sums[g]), scale, total[g]);
    }
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) quads[g][quad] = reinterpret_cast<FourRows>(total[g]);
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) put_scores(quads[g], q.query_scales[g], scores + g * kDecodeTile);
}

// Scores of a block against all queries, four, two or one at a time; the first ones ask for what comes next.
inline void coded_scores(const CodedRows& rows, const Coded& q, size_t group, const char* next, float* scores) {
  spread_scales(rows, q.halves);
  size_t g = 0;
  const auto ahead = [&] { return g == 0 ? next : nullptr; };
  for (; g + 4 <= group; g += 4) coded_scores_block<4>(rows, q.from(g), ahead(), scores + g * kDecodeTile);
  for (; g + 2 <= group; g += 2) coded_scores_block<2>(rows, q.from(g), ahead(), scores + g * kDecodeTile);
  for (; g < group; ++g) coded_scores_block<1>(rows, q.from(g), ahead(), scores + g * kDecodeTile);
}

constexpr int kRowVectors = kDecodeRows / Simd::lanes;

// The largest scale of every row.
inline void largest_scales(const Coded& coded, V* most) {
#pragma GCC unroll 4
  for (int i = 0; i < kRowVectors; ++i) {
    most[i] = Simd::zero();
    for (size_t b = 0; b < coded.blocks; ++b)
      most[i] = Simd::max(most[i], Simd::load_f16(coded.halves + b * kDecodeRows + i * Simd::lanes));
  }
}

// Weights p[G][kDecodeTile] of a block times the scales of its rows.
template <int G>
HELM_INLINE void code_weights(const float* p, const V* most, const Coded& to) {
  V share[G][kRowVectors];
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
    V largest = Simd::zero();
#pragma GCC unroll 4
    for (int i = 0; i < kRowVectors; ++i) {
      share[g][i] = Simd::load(p + g * kDecodeTile + i * Simd::lanes);
      largest = Simd::max(largest, Simd::mul(share[g][i], most[i]));
    }
    const float top = Simd::largest(largest);
    const V factor = Simd::set(word_factor(top));
    to.weight_scales[g] = top * (1 / kCodedMost);
#pragma GCC unroll 4
    for (int i = 0; i < kRowVectors; ++i) share[g][i] = Simd::mul(share[g][i], factor);
  }
  for (size_t b = 0; b < to.blocks; ++b) {
    V scale[kRowVectors];
#pragma GCC unroll 4
    for (int i = 0; i < kRowVectors; ++i) scale[i] = Simd::load_f16(to.halves + b * kDecodeRows + i * Simd::lanes);
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      int16_t words[kDecodeRows];
#pragma GCC unroll 4
      for (int i = 0; i < kRowVectors; ++i) Simd::store_whole(words + i * Simd::lanes, whole_part(share[g][i], scale[i]));
      memcpy(to.pairs + (b * 4 + g) * kRowPairs, words, sizeof(words));
    }
  }
}

// Sums of pairs of rows, times their weights, to natural order and to out.
HELM_INLINE void put_columns(const I* sums, V scale, float* out) {
  using All = typename IndicesTo<Simd::lanes>::Type;
  const auto low = reinterpret_cast<CodePairs>(sums[0]), high = reinterpret_cast<CodePairs>(sums[1]);
  const V first = Simd::floats(reinterpret_cast<I>(parts_by_turns<0>(low, high, All())));
  const V second = Simd::floats(reinterpret_cast<I>(parts_by_turns<1>(low, high, All())));
  Simd::store(out, Simd::fma(first, scale, Simd::load(out)));
  Simd::store(out + Simd::lanes, Simd::fma(second, scale, Simd::load(out + Simd::lanes)));
}

// out[g][d...] += weighted sum of the block's rows: N half units of G heads.
template <int N, int G>
HELM_INLINE void coded_columns(const CodedRows& rows, size_t d, const Coded& weights, Asking& ahead, float* out) {
  constexpr size_t half = kCodedUnit / 2;
  const int32_t* pairs[N];
#pragma GCC unroll 4
  for (size_t n = 0; n < N; ++n) pairs[n] = weights.pairs + (d + n * half) / kScaled * 4 * kRowPairs;
  const uint8_t* row = reinterpret_cast<const uint8_t*>(rows.data) + d;
  const size_t stride = rows.stride;
  I sums[G][N][2];
#pragma GCC unroll 4
  for (auto& head : sums)
#pragma GCC unroll 4
    for (auto& both : head) both[0] = both[1] = Simd::every(0);
#pragma GCC unroll 2
  for (size_t r = 0; r < kRowPairs; ++r, row += 2 * stride) {
    ahead.step();
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n) {
      const auto a = reinterpret_cast<CodeWords>(Simd::signed_words(row + n * half));
      const auto b = reinterpret_cast<CodeWords>(Simd::signed_words(row + stride + n * half));
      const I low = reinterpret_cast<I>(interleaved<1, false>(a, b)), high = reinterpret_cast<I>(interleaved<1, true>(a, b));
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
        sums[g][n][0] = Simd::dot_every(sums[g][n][0], low, pairs[n] + g * kRowPairs + r);
        sums[g][n][1] = Simd::dot_every(sums[g][n][1], high, pairs[n] + g * kRowPairs + r);
      }
    }
  }
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g)
#pragma GCC unroll 4
    for (int n = 0; n < N; ++n)
      put_columns(sums[g][n], Simd::set(weights.weight_scales[g]), out + g * rows.width + d + n * half);
}

// out[G][width] += a block's rows, weighted by p[G][kDecodeTile].
template <int G>
void coded_weighted_block(const CodedRows& given, const float* p, const V* most, const Coded& weights, const char* next,
                          float* out) {
  constexpr int N = 4 / G;
  constexpr size_t columns = N * kCodedUnit / 2;
  const CodedRows rows = given;
  code_weights<G>(p, most, weights);
  size_t d = 0;
  Asking ahead = asking(next, kDecodeRows * rows.stride, kRowPairs * ((rows.width + columns - 1) / columns));
  for (; d + columns <= rows.width; d += columns) coded_columns<N, G>(rows, d, weights, ahead, out);
  for (; d < rows.width; d += kCodedUnit / 2) coded_columns<1, G>(rows, d, weights, ahead, out);
}

// The same of all query heads, four, two or one at a time.
inline void coded_weighted(const CodedRows& rows, const float* p, size_t group, const char* next, const Coded& coded,
                           float* out) {
  turn_scales(rows, coded.halves);
  V most[kRowVectors];
  largest_scales(coded, most);
  const auto some = [&](size_t g, const auto& block) {
    block(rows, p + g * kDecodeTile, most, coded.from(g), g == 0 ? next : nullptr, out + g * rows.width);
  };
  size_t g = 0;
  for (; g + 4 <= group; g += 4) some(g, coded_weighted_block<4>);
  for (; g + 2 <= group; g += 2) some(g, coded_weighted_block<2>);
  for (; g < group; ++g) some(g, coded_weighted_block<1>);
}

// A row, padded with codes and scales of zero in `to`, which is zero.
inline void copy_coded(const char* row, size_t head_dim, size_t width, char* to) {
  memcpy(to, row, head_dim);
  memcpy(to + width, row + head_dim, head_dim / kScaled * 2);
}

}  // namespace
}  // namespace helm
