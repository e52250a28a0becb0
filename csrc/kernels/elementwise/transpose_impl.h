// Small matrices in registers of 16 bytes, transposed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace helm {
namespace {

typedef uint8_t Bytes16 __attribute__((vector_size(16)));
typedef uint16_t Halves8 __attribute__((vector_size(16)));
typedef uint32_t Words4 __attribute__((vector_size(16)));

inline Bytes16 low_of(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}
inline Bytes16 high_of(Bytes16 a, Bytes16 b) {
  return __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}
inline Halves8 low_of(Halves8 a, Halves8 b) { return __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11); }
inline Halves8 high_of(Halves8 a, Halves8 b) { return __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15); }
inline Words4 low_of(Words4 a, Words4 b) { return __builtin_shufflevector(a, b, 0, 4, 1, 5); }
inline Words4 high_of(Words4 a, Words4 b) { return __builtin_shufflevector(a, b, 2, 6, 3, 7); }

// N registers of N elements, transposed: interleaving the halves of the list log2(N) times.
template <int N, class T>
void transpose(T* rows) {
  T next[N];
#pragma GCC unroll 4
  for (int stage = 1; stage < N; stage *= 2) {
#pragma GCC unroll 16
    for (int i = 0; i < N / 2; ++i)
      next[2 * i] = low_of(rows[i], rows[i + N / 2]), next[2 * i + 1] = high_of(rows[i], rows[i + N / 2]);
#pragma GCC unroll 16
    for (int i = 0; i < N; ++i) rows[i] = next[i];
  }
}

// Transposes from[lines][columns], 32-bit words, to to[columns][step], of which the first `lines` words of each line
// are written. Both counts are multiples of 4.
inline void transpose_words(const int32_t* from, size_t lines, size_t columns, int32_t* to, size_t step) {
  for (size_t c = 0; c < columns; c += 4)
    for (size_t l = 0; l < lines; l += 4) {
      Words4 block[4];
      for (size_t i = 0; i < 4; ++i) memcpy(&block[i], from + (l + i) * columns + c, sizeof(Words4));
      transpose<4>(block);
      for (size_t i = 0; i < 4; ++i) memcpy(to + (c + i) * step + l, &block[i], sizeof(Words4));
    }
}

}  // namespace
}  // namespace helm
