// Products of quantised weights with activations four by four, by arm64's dot products of 8-bit numbers.
//
// A 16-bit activation is 256 h + l, h in [-128, 127] and l in [0, 255]. Codes c and l - 128 have 8 bits as well, so
// that sum x c = 128 (2 sum h c + sum c) + sum (l - 128) c: what pairs_impl.h gives, bit for bit, with a fourth of its
// instructions.
#pragma once
#include "kernels/linear/codes_impl.h"

namespace helm {
namespace {

// Of four columns in the order 0, 2, 1, 3, as q8_0 has them in a register: every h, then every l - 128.
inline void arrange_words(int16_t* words) {
  constexpr int order[4] = {0, 2, 1, 3};
  uint8_t bytes[2 * kRun];
  for (size_t q = 0; q < kRun / 4; ++q)
    for (int j = 0; j < 4; ++j) {
      const auto bits = static_cast<uint16_t>(words[4 * q + order[j]]);
      bytes[8 * q + j] = static_cast<uint8_t>(bits >> 8);
      bytes[8 * q + 4 + j] = static_cast<uint8_t>(bits ^ 128);
    }
  memcpy(words, bytes, sizeof(bytes));
}

// What is taken off codes that do not fit.
template <class C>
constexpr int32_t kAbove = 0;
template <>
constexpr int32_t kAbove<Codes<Format::q8>> = 128;

// use(q, i, w) with the codes of columns 4q to 4q + 3 of span s in the lanes of register i.
template <class C, class Use>
HELM_INLINE void quads(const C& code, size_t s, const Use& use) {
  I even;
  code.pairs(s, [&](size_t p, int i, I w) HELM_LAMBDA {
    if (p % 2 == 0)
      even = w;
    else
      use(p / 2, i, vreinterpretq_s32_u16(vsliq_n_u16(vreinterpretq_u16_s32(even), vreinterpretq_u16_s32(w), 8)));
  });
}

template <class Use>
HELM_INLINE void eight_bit_quads(const uint8_t* lines, int32_t flipped, const Use& use) {
#pragma GCC unroll 8
  for (int l = 0; l < 8; ++l)
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) use(l, i, veorq_s32(line_at(lines + l * kLine, i), Simd::every(flipped)));
}

template <class Use>
HELM_INLINE void quads(const Codes<Format::q8_0>& code, size_t, const Use& use) {
  eight_bit_quads(code.codes, 0, use);
}

template <class Use>
HELM_INLINE void quads(const Codes<Format::q8>& code, size_t s, const Use& use) {
  eight_bit_quads(code.codes + s * 8 * kLine, static_cast<int32_t>(0x80808080u), use);
}

// Bytes of two codes, of columns 0 and 2, 4 and 6, 1 and 3, 5 and 7.
template <class Use>
HELM_INLINE void four_bit_quads(const uint8_t* lines, const Use& use) {
#pragma GCC unroll 4
  for (int l = 0; l < 4; ++l)
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      const uint8x16_t w = vreinterpretq_u8_s32(line_at(lines + l * kLine, i));
      const uint8x16_t low = vandq_u8(w, vdupq_n_u8(15)), high = vshrq_n_u8(w, 4);
      use(2 * l, i, vreinterpretq_s32_u8(vtrn1q_u8(low, high)));
      use(2 * l + 1, i, vreinterpretq_s32_u8(vtrn2q_u8(low, high)));
    }
}

template <class Use>
HELM_INLINE void quads(const Codes<Format::q4_0>& code, size_t, const Use& use) {
  four_bit_quads(code.codes, use);
}

template <class Use>
HELM_INLINE void quads(const Codes<Format::q4>& code, size_t s, const Use& use) {
  four_bit_quads(code.codes + s * 4 * kLine, use);
}

template <class Use>
HELM_INLINE void quads(const Codes<Format::q4_k>& code, size_t s, const Use& use) {
  four_bit_quads(code.codes + s * 4 * kLine, use);
}

template <class C, int T, int kChains>
HELM_INLINE void add_products(const C& code, size_t s, const int32_t* x, I (*sum)[T][kVectors]) {
  const int32_t* bytes = x + (C::span == kRun ? 0 : s % 2 * 8) * T;
  I high[T][kVectors], low[T][kVectors], codes[kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    codes[i] = Simd::every(0);
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) high[t][i] = low[t][i] = Simd::every(0);
  }
  quads(code, s, [&](size_t q, int i, I w) HELM_LAMBDA {
    codes[i] = Simd::dot_bytes(codes[i], w, Simd::every(0x01010101));
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t) {
      high[t][i] = Simd::dot_bytes(high[t][i], w, Simd::every(bytes[2 * q * T + t]));
      low[t][i] = Simd::dot_bytes(low[t][i], w, Simd::every(bytes[(2 * q + 1) * T + t]));
    }
  });
#pragma GCC unroll 16
  for (int t = 0; t < T; ++t) {
    const int32_t taken = kAbove<C> * (x[18 * T + t] + x[19 * T + t]);
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      const I upper = vshlq_n_s32(vaddq_s32(vshlq_n_s32(high[t][i], 1), codes[i]), 7);
      sum[0][t][i] = vaddq_s32(vaddq_s32(sum[0][t][i], Simd::every(taken)), vaddq_s32(upper, low[t][i]));
    }
  }
}

}  // namespace
}  // namespace helm
