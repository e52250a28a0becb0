// Sixteen lanes: AVX-512 F, BW, DQ and VL, and VNNI where it is compiled for that.
#pragma once
#include <immintrin.h>

#include "kernels/simd/ahead.h"
#include "formats/format.h"

namespace helm {
namespace {

struct Simd {
  using V = __m512;
  static constexpr size_t lanes = 16;
#ifdef __AVX512VNNI__
  static constexpr const char* name = "avx512vnni";
  static constexpr bool word_product = true;
#else
  static constexpr const char* name = "avx512";
  static constexpr bool word_product = false;
#endif
  // 12 tokens x 32 rows are 24 of the 32 registers; streaming, 16 tokens x 16 rows are 16.
  static constexpr int stream_block = 16, stream_tokens = 16, product_block = 12, product_panels = 2;
  static constexpr bool streams_many = false;
  static constexpr int code_stream_tokens = 16;
  static constexpr size_t product_depth = 128;  // columns of a tile in f32, which stays in L1
  static constexpr int in_flight = 8;           // two FMA ports, latency four

  static V zero() { return _mm512_setzero_ps(); }
  static V set(float v) { return _mm512_set1_ps(v); }
  static V load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, V v) { _mm512_storeu_ps(p, v); }
  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static V add(V a, V b) { return _mm512_add_ps(a, b); }
  static V sub(V a, V b) { return _mm512_sub_ps(a, b); }
  static V mul(V a, V b) { return _mm512_mul_ps(a, b); }
  static V div(V a, V b) { return _mm512_div_ps(a, b); }
  static V max(V a, V b) { return _mm512_max_ps(a, b); }
  static V min(V a, V b) { return _mm512_min_ps(a, b); }
  // value * 2^n, where n sits in the low bits of `shifted` = n + 1.5 * 2^23.
  static V scale_exponent(V value, V shifted) {
    const __m512i n = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(value), n));
  }
  static float sum(V v) { return _mm512_reduce_add_ps(v); }
  static float largest(V v) { return _mm512_reduce_max_ps(v); }
  // Lane i is the sum of v[i].
  static V sums(const V* v) { return halves<0x88, 0xdd>(eight(v), eight(v + 8)); }
  template <int kEven, int kOdd>
  static V halves(V a, V b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, kEven), _mm512_shuffle_f32x4(a, b, kOdd));
  }
  static V eight(const V* v) { return halves<0x44, 0xee>(four(v), four(v + 4)); }
  static V four(const V* v) {
    const __m512d a = _mm512_castps_pd(two(v)), b = _mm512_castps_pd(two(v + 2));
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)), _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));
  }
  static V two(const V* v) { return _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1])); }

  static V load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static V load_bf16(const uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static void store_f16(uint16_t* p, V v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
#ifdef __AVX512BF16__
  static void store_bf16(uint16_t* p, V v) {  // subnormals become zero, as BF16 units take them
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), (__m256i)_mm512_cvtneps_pbh(v));
  }
#else
  static void store_bf16(uint16_t* p, V v) {
    const __m512i bits = _mm512_castps_si512(v), high = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
    __m512i half = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    half = _mm512_srli_epi32(half, 16);
    half = _mm512_mask_or_epi32(half, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), high, _mm512_set1_epi32(0x40));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(half));
  }
#endif
  // Four f16.
  static void widen_four(const char* p, float* to) {
    _mm_storeu_ps(to, _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // Sixteen bytes as numbers.
  static V bytes(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }
  static V signed_bytes(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
  }

  // Lanes of 32 bits as pairs of 16-bit numbers: of weights, and of one token's activations in every lane.
  using I = __m512i;
  static constexpr int words_block = 8;  // tokens: 8 sums of products, 8 results
#ifdef __AVX512VNNI__
  // Written out, because GCC 12 copies sums around the intrinsic, and loads *b before it.
  static I dot(I sum, I a, I b) {
    __asm__("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "vm"(b));
    return sum;
  }
  static I dot_every(I sum, I a, const int32_t* b) {
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(a), "m"(*b));
    return sum;
  }
  // Lanes of 32 bits as four numbers of 8 bits: signed codes, and activations from -127 to 127, byte_bias above that.
  static constexpr int byte_most = 255, byte_bias = 128;
  static constexpr bool codes_signed = true;
  static I dot_bytes(I sum, I codes, I x) {
    __asm__("vpdpbusd %1, %2, %0" : "+v"(sum) : "v"(codes), "v"(x));
    return sum;
  }
  static I whole_bytes(I sum) { return sum; }
#else
  // The same where sums are two numbers of 16 bits, which hold those of 32 columns once codes are what they stand for:
  // up to 15 times 127 in 16 columns, and levels of mxfp4, up to 12. On the way they may wrap around.
  static constexpr int byte_most = 24, byte_bias = 0;
  static constexpr bool codes_signed = false;
  static I start_bytes(int factor, I counts) {
    return _mm512_mullo_epi16(every_word(static_cast<int16_t>(factor)), counts);
  }
  // Written out, because GCC 12 copies sums around the intrinsics.
  static I dot_bytes(I sum, I codes, I x) {
    I product;
    __asm__("vpmaddubsw %3, %2, %1\n\tvpaddw %1, %0, %0" : "+v"(sum), "=&v"(product) : "v"(codes), "v"(x));
    return sum;
  }
  static I whole_bytes(I sum) { return _mm512_madd_epi16(sum, every_word(1)); }
  static I dot(I sum, I a, I b) { return _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)); }
  static I dot_every(I sum, I a, const int32_t* b) { return dot(sum, a, every(*b)); }
#endif
  static I dot_in_loop(I sum, I a, I b) { return dot(sum, a, b); }
  // Two columns of 16 bf16 to 16 pairs.
  static I columns_to_pairs(I columns) {
    const I rows = _mm512_cvtepu16_epi32(_mm256_set_epi16(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0));
    return _mm512_permutexvar_epi16(either(rows, _mm512_slli_epi32(_mm512_add_epi32(rows, every(16)), 16)), columns);
  }
  static I pairs_of_columns(const uint16_t* columns, int) { return columns_to_pairs(words(columns)); }
  // Pairs of bf16 to the nearest, one of `first` and one of `second` each; and sum + the products of two such pairs.
#ifdef __AVX512BF16__
  static I pair(V first, V second) { return columns_to_pairs(rounded_pairs(first, second)); }
  // Pairs of bf16 to the nearest, the numbers of each side by side in `lower`, then in `upper`.
  static I rounded_pairs(V lower, V upper) { return (I)_mm512_cvtne2ps_pbh(upper, lower); }
  static V dot_pairs(V sum, I a, I b) { return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b); }
#else
  static I pair(V first, V second) { return columns_to_pairs(rounded_pairs(first, second)); }
  static I rounded_pairs(V lower, V upper) {
    uint16_t both[2 * lanes];
    store_bf16(both, lower);
    store_bf16(both + lanes, upper);
    return words(both);
  }
  // What the instruction is specified to do (Intel's manual, VDPBF16PS), as long as threads flush subnormals: a fused
  // product of the second numbers, then of the first, each rounded to the nearest even; subnormals are zero.
  static V dot_pairs(V sum, I a, I b) { return fma(first(a), first(b), fma(second(a), second(b), sum)); }
  static V first(I pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
  static V second(I pairs) {
    return _mm512_castsi512_ps(_mm512_and_si512(pairs, every(static_cast<int32_t>(0xffff0000u))));
  }
#endif
  static I add_counts(I a, I b) { return _mm512_add_epi32(a, b); }
  static I sub_counts(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I words(const void* p) { return _mm512_loadu_si512(p); }
  static void store_words(void* p, I v) { _mm512_storeu_si512(p, v); }
  // Bytes as 16-bit numbers.
  static I signed_words(const uint8_t* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static I every(int32_t v) { return _mm512_set1_epi32(v); }
  static I every_word(int16_t v) { return _mm512_set1_epi16(v); }
  template <int n>
  static I up(I v) {
    return _mm512_slli_epi16(v, n);
  }
  template <int n>
  static I down(I v) {
    return _mm512_srli_epi16(v, n);
  }
  template <int n>
  static I down_signed(I v) {
    return _mm512_srai_epi16(v, n);
  }
  static I both(I a, I b) { return _mm512_and_si512(a, b); }
  // Each byte, below 16, as an index of `table`.
  static I looked_up(const uint8_t* table, I indices) {
    const __m128i part = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(part), indices);
  }
  static I either(I a, I b) { return _mm512_or_si512(a, b); }
  static I sub_words(I a, I b) { return _mm512_sub_epi16(a, b); }
  static V floats(I v) { return _mm512_cvtepi32_ps(v); }
  // Rows' pairs of 16-bit words side by side, of the lower half of the rows or of the upper one; and a number of each.
  template <bool upper>
  static I half_of_words(I v) {
    return _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(v, upper));
  }
  template <bool upper>
  static V half_twice(V v) {
    const I rows = _mm512_cvtepu8_epi32(_mm_set_epi64x(0x0707060605050404, 0x0303020201010000));
    return _mm512_permutexvar_ps(_mm512_add_epi32(rows, every(upper ? 8 : 0)), v);
  }
  // The numbers of a table at the four bits from `bit` on.
  static constexpr bool float_tables = true;
  template <int bit>
  static V looked_up_at(const float* table, I v) {
    return _mm512_permutexvar_ps(_mm512_srli_epi32(v, bit), load(table));
  }
  static V low_words(I v) { return floats(_mm512_srai_epi32(_mm512_slli_epi32(v, 16), 16)); }
  static V high_words(I v) { return floats(_mm512_srai_epi32(v, 16)); }
  // Whole numbers of 16 bits.
  static void store_whole(int16_t* p, V v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtsepi32_epi16(_mm512_cvtps_epi32(v)));
  }

  // Nearest whole numbers of 16 bits, four of a, four of b by turns.
  static I rounded_words(V a, V b) { return _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b)); }

  // Nearest whole numbers of 16 bits, one of `first` and one of `second` each.
  static I word_pair(V first, V second) {
    const I odd = _mm512_slli_epi32(_mm512_cvtps_epi32(second), 16);
    return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_cvtps_epi32(first), odd);
  }

  // 16 codes of four bits: the low halves of eight bytes, then the high ones.
  static void nibbles(const uint8_t* p, V* codes) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    const __m128i both = _mm_and_si128(_mm_unpacklo_epi64(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi8(15));
    codes[0] = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(both));
  }
  // 16 bytes of two codes each: all low halves, all high ones.
  static void nibble_pairs(const uint8_t* p, V* low, V* high) {
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    low[0] = _mm512_cvtepi32_ps(_mm512_and_si512(wide, _mm512_set1_epi32(15)));
    high[0] = _mm512_cvtepi32_ps(_mm512_srli_epi32(wide, 4));
  }
  // 64 bytes to an aligned line of memory, past the caches; drain() before others read them.
  static void store_line(char* to, const char* from) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to), _mm512_loadu_si512(from));
  }
  static void drain() { _mm_sfence(); }
  static unsigned long long read(const char* p, size_t bytes) {
    __m512i a[8];
    for (auto& v : a) v = _mm512_setzero_si512();
    size_t o = 0;
    for (; o + 512 <= bytes; o += 512)
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) {
        __builtin_prefetch(p + o + i * 64 + kAhead);
        a[i] = _mm512_or_si512(a[i], _mm512_loadu_si512(p + o + i * 64));
      }
    for (; o < bytes; o += 64) a[0] = _mm512_or_si512(a[0], _mm512_loadu_si512(p + o));
    for (int i = 1; i < 8; ++i) a[0] = _mm512_or_si512(a[0], a[i]);
    return static_cast<unsigned long long>(_mm512_reduce_or_epi64(a[0]));
  }
};

}  // namespace
}  // namespace helm
