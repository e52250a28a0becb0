// Four lanes: NEON, as every arm64 processor has it; with its 8-bit dot products, or its BF16 units, where compiled for
// them.
#pragma once
#include <arm_neon.h>

#include "kernels/simd/ahead.h"
#include "kernels/simd/four.h"

namespace helm {
namespace {

struct Simd : FourLanes<Simd> {
  using V = float32x4_t;
  static constexpr size_t lanes = 4;
  static constexpr const char* name = "neon";
  // 6 tokens x 16 rows are 24 of the 32 registers; the others hold four of weights and a broadcast.
  static constexpr int stream_block = 6, stream_tokens = 12, product_block = 6, product_panels = 1;
  static constexpr bool streams_many = false;
  static constexpr int code_stream_tokens = 12;
  static constexpr size_t product_depth = 128;  // columns of a tile in f32, which stays in L1
  static constexpr int in_flight = 16;          // up to four FMA pipes, latency four

  static V zero() { return vdupq_n_f32(0); }
  static V set(float v) { return vdupq_n_f32(v); }
  static V load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, V v) { vst1q_f32(p, v); }
  static V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
  static V add(V a, V b) { return vaddq_f32(a, b); }
  static V sub(V a, V b) { return vsubq_f32(a, b); }
  static V mul(V a, V b) { return vmulq_f32(a, b); }
  static V div(V a, V b) { return vdivq_f32(a, b); }
  // The second where they have no order, as elsewhere: the instructions would return NaN.
  static V max(V a, V b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static V min(V a, V b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  // value * 2^n, where n sits in the low bits of `shifted` = n + 1.5 * 2^23.
  static V scale_exponent(V value, V shifted) {
    const int32x4_t n = vshlq_n_s32(vreinterpretq_s32_f32(shifted), 23);
    return vreinterpretq_f32_s32(vaddq_s32(vreinterpretq_s32_f32(value), n));
  }
  static float sum(V v) { return vaddvq_f32(v); }
  static float largest(V v) { return vmaxnmvq_f32(v); }
  // Lane i is the sum of v[i].
  static V sums(const V* v) { return vpaddq_f32(vpaddq_f32(v[0], v[1]), vpaddq_f32(v[2], v[3])); }

  static V load_f16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static V load_bf16(const uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  static void store_f16(uint16_t* p, V v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
  static void store_bf16(uint16_t* p, V v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t rounded = vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd);
    const uint32x4_t nan = vorrq_u32(bits, vdupq_n_u32(0x400000));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), rounded, nan), 16));
  }
  // Four f16.
  static void widen_four(const char* p, float* to) {
    uint16x4_t halves;
    memcpy(&halves, p, 8);
    vst1q_f32(to, vcvt_f32_f16(vreinterpret_f16_u16(halves)));
  }
  // Four bytes, each as a number of 16 bits.
  static uint16x4_t four_bytes(const uint8_t* p) {
    uint32_t four;
    memcpy(&four, p, 4);
    return vget_low_u16(vmovl_u8(vcreate_u8(four)));
  }
  // Four bytes as numbers.
  static V bytes(const uint8_t* p) { return vcvtq_f32_u32(vmovl_u16(four_bytes(p))); }
  static V signed_bytes(const uint8_t* p) {
    uint32_t four;
    memcpy(&four, p, 4);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(four)))));
  }

  // Lanes of 32 bits as pairs of 16-bit numbers: of weights, and of one token's activations in every lane.
  using I = int32x4_t;
#ifdef __ARM_FEATURE_DOTPROD
  static constexpr int words_block = 2;  // tokens: 16 sums of products, 4 of codes, 8 results
  // Lanes of 32 bits as four 8-bit numbers.
  static I dot_bytes(I sum, I a, I b) { return vdotq_s32(sum, vreinterpretq_s8_s32(a), vreinterpretq_s8_s32(b)); }
#else
  static I dot_bytes(I sum, I a, I b) {
    const int8x16_t x = vreinterpretq_s8_s32(a), y = vreinterpretq_s8_s32(b);
    const int16x8_t low = vmull_s8(vget_low_s8(x), vget_low_s8(y)), high = vmull_high_s8(x, y);
    return vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
  }
  static constexpr int words_block = 3;  // tokens: 12 sums of products, 12 results
#endif
  static constexpr int byte_most = 255, byte_bias = 0;
  static constexpr bool codes_signed = true;  // in dot_bytes
  static I whole_bytes(I sum) { return sum; }
  static I dot_in_loop(I sum, I a, I b) { return dot(sum, a, b); }
  static constexpr bool word_product = false;
  static constexpr bool float_tables = false;  // no instruction looks up as many
  static I dot(I sum, I a, I b) {
    const int16x8_t x = vreinterpretq_s16_s32(a), y = vreinterpretq_s16_s32(b);
    return vaddq_s32(sum, vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y)));
  }
#ifdef __ARM_FEATURE_BF16_VECTOR_ARITHMETIC
  // Rows 4i to 4i + 3 of two columns of 16 bf16 as pairs.
  static I pairs_of_columns(const uint16_t* columns, int i) {
    return joined(vld1_u16(columns + i * lanes), vld1_u16(columns + 16 + i * lanes));
  }
  // Pairs of bf16 to the nearest, one of `first` and one of `second` each; and sum + the products of two such pairs.
  // The sum of both products, then the total, are rounded to odd: by less than one in the last place, twice as much as
  // to the nearest. The total is rounded once for two products, that of f32 for each: bounds of errors are the same.
  static I pair(V first, V second) {
    return joined(vreinterpret_u16_bf16(vcvt_bf16_f32(first)), vreinterpret_u16_bf16(vcvt_bf16_f32(second)));
  }
  static V dot_pairs(V sum, I a, I b) { return vbfdotq_f32(sum, vreinterpretq_bf16_s32(a), vreinterpretq_bf16_s32(b)); }
  static I joined(uint16x4_t first, uint16x4_t second) {
    return vreinterpretq_s32_u32(vaddw_u16(vshll_n_u16(second, 16), first));
  }
#endif
  static I add_counts(I a, I b) { return vaddq_s32(a, b); }
  static I sub_counts(I a, I b) { return vsubq_s32(a, b); }
  // Bytes as 16-bit numbers.
  static I signed_words(const uint8_t* p) {
    return vreinterpretq_s32_s16(vmovl_s8(vld1_s8(reinterpret_cast<const int8_t*>(p))));
  }
  static I every(int32_t v) { return vdupq_n_s32(v); }
  static I every_word(int16_t v) { return vreinterpretq_s32_s16(vdupq_n_s16(v)); }
  template <int n>
  static I up(I v) {
    return vreinterpretq_s32_u16(vshlq_n_u16(vreinterpretq_u16_s32(v), n));
  }
  template <int n>
  static I down(I v) {
    return vreinterpretq_s32_u16(vshrq_n_u16(vreinterpretq_u16_s32(v), n));
  }
  template <int n>
  static I down_signed(I v) {
    return vreinterpretq_s32_s16(vshrq_n_s16(vreinterpretq_s16_s32(v), n));
  }
  static I both(I a, I b) { return vandq_s32(a, b); }
  // Each byte, below 16, as an index of `table`.
  static I looked_up(const uint8_t* table, I indices) {
    return vreinterpretq_s32_u8(vqtbl1q_u8(vld1q_u8(table), vreinterpretq_u8_s32(indices)));
  }
  static I either(I a, I b) { return vorrq_s32(a, b); }
  static I sub_words(I a, I b) {
    return vreinterpretq_s32_s16(vsubq_s16(vreinterpretq_s16_s32(a), vreinterpretq_s16_s32(b)));
  }
  static V floats(I v) { return vcvtq_f32_s32(v); }
  static V low_words(I v) { return floats(vshrq_n_s32(vshlq_n_s32(v, 16), 16)); }
  static V high_words(I v) { return floats(vshrq_n_s32(v, 16)); }
  // Whole numbers of 16 bits.
  static void store_whole(int16_t* p, V v) { vst1_s16(p, vqmovn_s32(vcvtq_s32_f32(v))); }

  // Nearest whole numbers of 16 bits, of a, then of b.
  static I rounded_words(V a, V b) {
    return vreinterpretq_s32_s16(vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(a)), vcvtnq_s32_f32(b)));
  }

  // 16 bytes as numbers.
  static void sixteen(uint8x16_t v, V* to) {
    const uint16x8_t low = vmovl_u8(vget_low_u8(v)), high = vmovl_high_u8(v);
    to[0] = vcvtq_f32_u32(vmovl_u16(vget_low_u16(low)));
    to[1] = vcvtq_f32_u32(vmovl_high_u16(low));
    to[2] = vcvtq_f32_u32(vmovl_u16(vget_low_u16(high)));
    to[3] = vcvtq_f32_u32(vmovl_high_u16(high));
  }
  // 16 codes of four bits: the low halves of eight bytes, then the high ones.
  static void nibbles(const uint8_t* p, V* codes) {
    const uint8x8_t bytes = vld1_u8(p);
    sixteen(vcombine_u8(vand_u8(bytes, vdup_n_u8(15)), vshr_n_u8(bytes, 4)), codes);
  }
  // 16 bytes of two codes each: all low halves, all high ones.
  static void nibble_pairs(const uint8_t* p, V* low, V* high) {
    const uint8x16_t bytes = vld1q_u8(p);
    sixteen(vandq_u8(bytes, vdupq_n_u8(15)), low);
    sixteen(vshrq_n_u8(bytes, 4), high);
  }
  // 64 bytes to an aligned line of memory; GCC has no intrinsic of the stores past the caches.
  static void store_line(char* to, const char* from) { memcpy(to, from, 64); }
  static void drain() {}
  static unsigned long long read(const char* p, size_t bytes) {
    uint64x2_t a[8];
    for (auto& v : a) v = vdupq_n_u64(0);
    size_t o = 0;
    for (; o + 128 <= bytes; o += 128)
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        if (i % 4 == 0) __builtin_prefetch(p + o + i * 16 + kAhead);
        a[i] = vorrq_u64(a[i], part(p + o + i * 16));
      }
    for (; o < bytes; o += 16) a[0] = vorrq_u64(a[0], part(p + o));
    for (int i = 1; i < 8; ++i) a[0] = vorrq_u64(a[0], a[i]);
    return vgetq_lane_u64(a[0], 0) | vgetq_lane_u64(a[0], 1);
  }
  static uint64x2_t part(const char* p) {
    uint64x2_t v;
    memcpy(&v, p, 16);
    return v;
  }
};

}  // namespace
}  // namespace helm
