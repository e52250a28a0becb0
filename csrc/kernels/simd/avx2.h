// Eight lanes: AVX2, FMA and F16C, and AVX-VNNI where HELM_AVXVNNI is defined: by its instructions where it is compiled
// for that, else by others that give the same.
#pragma once
#include <immintrin.h>

#include "kernels/simd/ahead.h"
#include "formats/format.h"

namespace helm {
namespace {

struct Simd {
  using V = __m256;
  static constexpr size_t lanes = 8;
#if defined(HELM_AVXVNNI) && defined(__AVXVNNI__)
  static constexpr const char* name = "avxvnni";
#elif defined(HELM_AVXVNNI)
  static constexpr const char* name = "avxvnni-emulated";
#else
  static constexpr const char* name = "avx2";
#endif
  // 6 tokens x 16 rows are 12 of the 16 registers; the others hold a weight pair and a broadcast.
  static constexpr int stream_block = 6, stream_tokens = 12, product_block = 6, product_panels = 1;
  static constexpr bool streams_many = true;
  static constexpr int code_stream_tokens = 4;
  static constexpr size_t product_depth = 384;  // columns of a tile in f32, which stays in L1
  static constexpr int in_flight = 8;           // two FMA ports, latency four

  static V zero() { return _mm256_setzero_ps(); }
  static V set(float v) { return _mm256_set1_ps(v); }
  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, V v) { _mm256_storeu_ps(p, v); }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V add(V a, V b) { return _mm256_add_ps(a, b); }
  static V sub(V a, V b) { return _mm256_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm256_mul_ps(a, b); }
  static V div(V a, V b) { return _mm256_div_ps(a, b); }
  static V max(V a, V b) { return _mm256_max_ps(a, b); }
  static V min(V a, V b) { return _mm256_min_ps(a, b); }
  // value * 2^n, where n sits in the low bits of `shifted` = n + 1.5 * 2^23.
  static V scale_exponent(V value, V shifted) {
    const __m256i n = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(value), n));
  }
  static float sum(V v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
  }
  static float largest(V v) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_shuffle_ps(s, s, 1)));
  }
  // Lane i is the sum of v[i].
  static V sums(const V* v) {
    const V low = four(v), high = four(v + 4);
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31));
  }
  static V four(const V* v) { return _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3])); }

  static V load_f16(const uint16_t* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static V load_bf16(const uint16_t* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static void store_f16(uint16_t* p, V v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  static void store_bf16(uint16_t* p, V v) {
    const __m256i bits = _mm256_castps_si256(v), high = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
    const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i half = _mm256_blendv_epi8(_mm256_srli_epi32(rounded, 16), nan, is_nan);
    const __m256i pairs = _mm256_permute4x64_epi64(_mm256_packus_epi32(half, half), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(pairs));
  }
  // Four f16.
  static void widen_four(const char* p, float* to) {
    _mm_storeu_ps(to, _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // Eight bytes as numbers.
  static V bytes(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static V signed_bytes(const uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }

  // Lanes of 32 bits as pairs of 16-bit numbers: of weights, and of one token's activations in every lane.
  using I = __m256i;
  static constexpr int words_block = 4;  // tokens: 8 sums of products
  static constexpr bool word_product = true;
#if defined(HELM_AVXVNNI) && defined(__AVXVNNI__)
  // Written out, because GCC 12 copies sums around the intrinsics.
  static I dot(I sum, I a, I b) {
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "xm"(b));
    return sum;
  }
  static I dot_in_loop(I sum, I a, I b) { return dot(sum, a, b); }
#else
  static I dot(I sum, I a, I b) { return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b)); }
  // Written out, because GCC 12 keeps more products than there are registers beside twelve sums.
  static I dot_in_loop(I sum, I a, I b) {
    I product;
    __asm__("vpmaddwd %2, %3, %1\n\tvpaddd %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(a), "x"(b));
    return sum;
  }
#endif
  // Lanes of 32 bits as four numbers of 8 bits: codes, and activations from -127 to 127. With VNNI codes are signed,
  // and activations byte_bias above what they are; else codes are from 0 to byte_most.
#ifdef HELM_AVXVNNI
  static constexpr int byte_most = 255, byte_bias = 128;
  static constexpr bool codes_signed = true;
  static I whole_bytes(I sum) { return sum; }
#ifdef __AVXVNNI__
  static I dot_bytes(I sum, I codes, I x) {
    __asm__("%{vex%} vpdpbusd %1, %2, %0" : "+x"(sum) : "x"(codes), "x"(x));
    return sum;
  }
#else
  static I dot_bytes(I sum, I codes, I x) {
    const I even = dot(sum, down_signed<8>(up<8>(codes)), both(x, every_word(255)));
    return dot(even, down_signed<8>(codes), down<8>(x));
  }
#endif
#else
  // Sums are two numbers of 16 bits, which hold those of 32 columns once codes are what they stand for: up to 15 times
  // 127 in 16 columns, and levels of mxfp4, up to 12. On the way they may wrap around.
  static constexpr int byte_most = 24, byte_bias = 0;
  static constexpr bool codes_signed = false;
  static I start_bytes(int factor, I counts) {
    return _mm256_mullo_epi16(every_word(static_cast<int16_t>(factor)), counts);
  }
  static I dot_bytes(I sum, I codes, I x) {
    I product;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+x"(sum), "=&x"(product) : "x"(codes), "x"(x));
    return sum;
  }
  static I whole_bytes(I sum) { return _mm256_madd_epi16(sum, every_word(1)); }
#endif
  static I dot_every(I sum, I a, const int32_t* b) { return dot(sum, a, every(*b)); }
  static I add_counts(I a, I b) { return _mm256_add_epi32(a, b); }
  static I sub_counts(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I words(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
  static void store_words(void* p, I v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }
  // Bytes as 16-bit numbers.
  static I signed_words(const uint8_t* p) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  // Two columns of 16 bf16 to pairs: register i of two.
  static I pairs_of_columns(const uint16_t* columns, int i) {
    const auto* from = reinterpret_cast<const __m128i*>(columns) + i;
    const __m128i first = _mm_loadu_si128(from), second = _mm_loadu_si128(from + 2);
    return _mm256_set_m128i(_mm_unpackhi_epi16(first, second), _mm_unpacklo_epi16(first, second));
  }
  // Pairs of bf16 to the nearest, the numbers of each side by side in `lower`, then in `upper`.
  static I rounded_pairs(V lower, V upper) {
    uint16_t both[2 * lanes];
    store_bf16(both, lower);
    store_bf16(both + lanes, upper);
    return words(both);
  }
  // Pairs of bf16 to the nearest, one of `first` and one of `second` each.
  static I pair(V first, V second) {
    __m128i both[2];
    store_bf16(reinterpret_cast<uint16_t*>(both), first);
    store_bf16(reinterpret_cast<uint16_t*>(both + 1), second);
    return _mm256_set_m128i(_mm_unpackhi_epi16(both[0], both[1]), _mm_unpacklo_epi16(both[0], both[1]));
  }
  static I every(int32_t v) { return _mm256_set1_epi32(v); }
  static I every_word(int16_t v) { return _mm256_set1_epi16(v); }
  template <int n>
  static I up(I v) {
    return _mm256_slli_epi16(v, n);
  }
  template <int n>
  static I down(I v) {
    return _mm256_srli_epi16(v, n);
  }
  template <int n>
  static I down_signed(I v) {
    return _mm256_srai_epi16(v, n);
  }
  static I both(I a, I b) { return _mm256_and_si256(a, b); }
  // Each byte, below 16, as an index of `table`.
  static I looked_up(const uint8_t* table, I indices) {
    const __m128i part = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(part), indices);
  }
  static I either(I a, I b) { return _mm256_or_si256(a, b); }
  static I sub_words(I a, I b) { return _mm256_sub_epi16(a, b); }
  static V floats(I v) { return _mm256_cvtepi32_ps(v); }
  // Rows' pairs of 16-bit words side by side, of the lower half of the rows or of the upper one; and a number of each.
  template <bool upper>
  static I half_of_words(I v) {
    return _mm256_cvtepu16_epi32(_mm256_extracti128_si256(v, upper));
  }
  template <bool upper>
  static V half_twice(V v) {
    const I rows = _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0);
    return _mm256_permutevar8x32_ps(v, _mm256_add_epi32(rows, every(upper ? 4 : 0)));
  }
  // The numbers of a table at the four bits from `bit` on.
  static constexpr bool float_tables = true;
  template <int bit>
  static V looked_up_at(const float* table, I v) {
    const I index = _mm256_srli_epi32(v, bit);
    const V low = _mm256_permutevar8x32_ps(load(table), index), high = _mm256_permutevar8x32_ps(load(table + 8), index);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(index, 28)));
  }
  static V low_words(I v) { return floats(_mm256_srai_epi32(_mm256_slli_epi32(v, 16), 16)); }
  static V high_words(I v) { return floats(_mm256_srai_epi32(v, 16)); }
  // Whole numbers of 16 bits.
  static void store_whole(int16_t* p, V v) {
    const __m256i whole = _mm256_cvtps_epi32(v);
    const __m256i pairs = _mm256_permute4x64_epi64(_mm256_packs_epi32(whole, whole), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_castsi256_si128(pairs));
  }

  // Nearest whole numbers of 16 bits, four of a, four of b by turns.
  static I rounded_words(V a, V b) { return _mm256_packs_epi32(_mm256_cvtps_epi32(a), _mm256_cvtps_epi32(b)); }
  // Nearest whole numbers of 16 bits, one of `first` and one of `second` each.
  static I word_pair(V first, V second) {
    return _mm256_blend_epi16(_mm256_cvtps_epi32(first), _mm256_slli_epi32(_mm256_cvtps_epi32(second), 16), 0xaa);
  }

  // 16 codes of four bits: the low halves of eight bytes, then the high ones.
  static void nibbles(const uint8_t* p, V* codes) {
    const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    codes[0] = _mm256_cvtepi32_ps(_mm256_and_si256(wide, _mm256_set1_epi32(15)));
    codes[1] = _mm256_cvtepi32_ps(_mm256_srli_epi32(wide, 4));
  }
  // 16 bytes of two codes each: all low halves, all high ones.
  static void nibble_pairs(const uint8_t* p, V* low, V* high) {
    for (int i = 0; i < 2; ++i) {
      const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * i)));
      low[i] = _mm256_cvtepi32_ps(_mm256_and_si256(wide, _mm256_set1_epi32(15)));
      high[i] = _mm256_cvtepi32_ps(_mm256_srli_epi32(wide, 4));
    }
  }
  // 64 bytes to an aligned line of memory, past the caches; drain() before others read them.
  static void store_line(char* to, const char* from) {
    auto* target = reinterpret_cast<__m256i*>(to);
    const auto* source = reinterpret_cast<const __m256i*>(from);
    _mm256_stream_si256(target, _mm256_loadu_si256(source));
    _mm256_stream_si256(target + 1, _mm256_loadu_si256(source + 1));
  }
  static void drain() { _mm_sfence(); }
  static unsigned long long read(const char* p, size_t bytes) {
    __m256i a[8];
    for (auto& v : a) v = _mm256_setzero_si256();
    size_t o = 0;
    for (; o + 256 <= bytes; o += 256)
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        if (i % 2 == 0) __builtin_prefetch(p + o + i * 32 + kAhead);
        a[i] = _mm256_or_si256(a[i], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + o + i * 32)));
      }
    for (; o < bytes; o += 32)
      a[0] = _mm256_or_si256(a[0], _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + o)));
    for (int i = 1; i < 8; ++i) a[0] = _mm256_or_si256(a[0], a[i]);
    return _mm256_extract_epi64(a[0], 0) | _mm256_extract_epi64(a[0], 1) | _mm256_extract_epi64(a[0], 2) |
           _mm256_extract_epi64(a[0], 3);
  }
};

}  // namespace
}  // namespace helm
