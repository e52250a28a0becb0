// Four lanes in plain C++ (GCC vector extensions: SSE2 on x86-64, NEON on arm64).
#pragma once
#include "kernels/simd/ahead.h"
#include "kernels/simd/four.h"

namespace helm {
namespace {

struct Simd : FourLanes<Simd> {
  typedef float V __attribute__((vector_size(16)));
  typedef int32_t I __attribute__((vector_size(16)));
  typedef uint16_t Words __attribute__((vector_size(16)));
  typedef int16_t SignedWords __attribute__((vector_size(16)));
  static constexpr size_t lanes = 4;
  static constexpr const char* name = "portable";
  static constexpr int stream_block = 2, stream_tokens = 2, product_block = 2, product_panels = 1;
  static constexpr bool streams_many = false;
  static constexpr int code_stream_tokens = 2;
  static constexpr size_t product_depth = 128;  // columns of a tile in f32, which stays in L1
  static constexpr int in_flight = 8;

  static V zero() { return V{0, 0, 0, 0}; }
  static V set(float v) { return V{v, v, v, v}; }
  static V load(const float* p) {
    V v;
    memcpy(&v, p, 16);
    return v;
  }
  static void store(float* p, V v) { memcpy(p, &v, 16); }
  static V fma(V a, V b, V c) { return a * b + c; }
  static V add(V a, V b) { return a + b; }
  static V sub(V a, V b) { return a - b; }
  static V mul(V a, V b) { return a * b; }
  static V div(V a, V b) { return a / b; }
  static V max(V a, V b) { return a > b ? a : b; }
  static V min(V a, V b) { return a < b ? a : b; }
  // value * 2^n, where n sits in the low bits of `shifted` = n + 1.5 * 2^23.
  static V scale_exponent(V value, V shifted) {
    typedef uint32_t U __attribute__((vector_size(16)));
    U bits, n;
    memcpy(&bits, &value, 16);
    memcpy(&n, &shifted, 16);
    bits += n << 23;
    memcpy(&value, &bits, 16);
    return value;
  }
  static float sum(V v) { return (v[0] + v[2]) + (v[1] + v[3]); }
  static float largest(V v) {
    const float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
  }
  static V sums(const V* v) { return V{sum(v[0]), sum(v[1]), sum(v[2]), sum(v[3])}; }

  static V load_f16(const uint16_t* p) { return V{widen_f16(p[0]), widen_f16(p[1]), widen_f16(p[2]), widen_f16(p[3])}; }
  static V load_bf16(const uint16_t* p) {
    return V{widen_bf16(p[0]), widen_bf16(p[1]), widen_bf16(p[2]), widen_bf16(p[3])};
  }
  static void store_f16(uint16_t* p, V v) {
    for (size_t i = 0; i < lanes; ++i) p[i] = narrow_f16(v[i]);
  }
  static void store_bf16(uint16_t* p, V v) {
    for (size_t i = 0; i < lanes; ++i) p[i] = narrow_bf16(v[i]);
  }
  // Four f16.
  static void widen_four(const char* p, float* to) {
    uint16_t halves[4];
    memcpy(halves, p, 8);
    for (int i = 0; i < 4; ++i) to[i] = widen_f16(halves[i]);
  }
  // Four bytes as numbers.
  static V bytes(const uint8_t* p) {
    return V{static_cast<float>(p[0]), static_cast<float>(p[1]), static_cast<float>(p[2]), static_cast<float>(p[3])};
  }
  static V signed_bytes(const uint8_t* p) {
    const auto* b = reinterpret_cast<const int8_t*>(p);
    return V{static_cast<float>(b[0]), static_cast<float>(b[1]), static_cast<float>(b[2]), static_cast<float>(b[3])};
  }

  // Lanes of 32 bits as pairs of 16-bit numbers: of weights, and of one token's activations in every lane.
  static constexpr int words_block = 2;
  static constexpr bool word_product = false;
  static I dot(I sum, I a, I b) { return sum + low(a) * low(b) + (a >> 16) * (b >> 16); }
  static I dot_in_loop(I sum, I a, I b) { return dot(sum, a, b); }
  // Lanes of 32 bits as four numbers of 8 bits: signed codes, and activations from -127 to 127.
  static constexpr int byte_most = 255, byte_bias = 0;
  static constexpr bool codes_signed = true;
  static I dot_bytes(I sum, I codes, I x) {
    for (int shift = 0; shift < 32; shift += 8)
      sum += (static_cast<I>(codes << (24 - shift)) >> 24) * (static_cast<I>(x << (24 - shift)) >> 24);
    return sum;
  }
  static I whole_bytes(I sum) { return sum; }
  static I add_counts(I a, I b) { return a + b; }
  static I sub_counts(I a, I b) { return a - b; }
  static I low(I v) { return static_cast<I>(v << 16) >> 16; }
  // Bytes as 16-bit numbers.
  static I signed_words(const uint8_t* p) {
    SignedWords words;
    for (int i = 0; i < 8; ++i) words[i] = static_cast<int8_t>(p[i]);
    return reinterpret_cast<I>(words);
  }
  static I every(int32_t v) { return I{v, v, v, v}; }
  static I every_word(int16_t v) { return reinterpret_cast<I>(SignedWords{v, v, v, v, v, v, v, v}); }
  template <int n>
  static I up(I v) {
    return reinterpret_cast<I>(reinterpret_cast<Words>(v) << n);
  }
  template <int n>
  static I down(I v) {
    return reinterpret_cast<I>(reinterpret_cast<Words>(v) >> n);
  }
  template <int n>
  static I down_signed(I v) {
    return reinterpret_cast<I>(reinterpret_cast<SignedWords>(v) >> n);
  }
  static I both(I a, I b) { return a & b; }
  // Each byte, below 16, as an index of `table`.
  static I looked_up(const uint8_t* table, I indices) {
    uint8_t bytes[sizeof(I)];
    memcpy(bytes, &indices, sizeof(I));
    for (uint8_t& byte : bytes) byte = table[byte];
    memcpy(&indices, bytes, sizeof(I));
    return indices;
  }
  static I either(I a, I b) { return a | b; }
  static I sub_words(I a, I b) { return reinterpret_cast<I>(reinterpret_cast<Words>(a) - reinterpret_cast<Words>(b)); }
  static V floats(I v) {
    return V{static_cast<float>(v[0]), static_cast<float>(v[1]), static_cast<float>(v[2]), static_cast<float>(v[3])};
  }
  static V low_words(I v) { return floats(low(v)); }
  static V high_words(I v) { return floats(v >> 16); }
  // Whole numbers of 16 bits.
  static void store_whole(int16_t* p, V v) {
    for (size_t i = 0; i < lanes; ++i) p[i] = v[i] == v[i] ? static_cast<int16_t>(v[i]) : int16_t{0};
  }

  // Nearest whole numbers of 16 bits, of a, then of b.
  static I rounded_words(V a, V b) {
    const V magic = set(12582912.0f);
    int16_t words[2 * lanes];
    store_whole(words, sub(add(a, magic), magic));
    store_whole(words + lanes, sub(add(b, magic), magic));
    return Simd::words(words);
  }

  // 16 codes of four bits: the low halves of eight bytes, then the high ones.
  static void nibbles(const uint8_t* p, V* codes) {
    for (int i = 0; i < 8; ++i) {
      codes[i / 4][i % 4] = static_cast<float>(p[i] & 15);
      codes[2 + i / 4][i % 4] = static_cast<float>(p[i] >> 4);
    }
  }
  // 16 bytes of two codes each: all low halves, all high ones.
  static void nibble_pairs(const uint8_t* p, V* low, V* high) {
    for (int i = 0; i < 16; ++i) {
      low[i / 4][i % 4] = static_cast<float>(p[i] & 15);
      high[i / 4][i % 4] = static_cast<float>(p[i] >> 4);
    }
  }
  // 64 bytes to an aligned line of memory.
  static void store_line(char* to, const char* from) { memcpy(to, from, 64); }
  static void drain() {}
  static unsigned long long read(const char* p, size_t bytes) {
    typedef unsigned long long L __attribute__((vector_size(16)));
    L acc[4] = {};
    for (size_t o = 0; o < bytes; o += 64) {
      __builtin_prefetch(p + o + kAhead);
      for (int i = 0; i < 4; ++i) {
        L v;
        memcpy(&v, p + o + i * 16, 16);
        acc[i] |= v;
      }
    }
    const L all = acc[0] | acc[1] | acc[2] | acc[3];
    return all[0] | all[1];
  }
};

}  // namespace
}  // namespace helm
