// Products of many tokens with quantised weights as whole numbers of 8 bits, two rows by two tokens, by arm64's I8MM,
// for the instruction set whose Simd was included before.
//
// An instruction multiplies eight columns of two rows by eight columns of two tokens: twice what one of dot products
// does. Panels are as they are stored: a tile has quads (code_tiles_impl.h) of a row side by side, and activations are
// packed likewise. Sums are the same whole numbers, and are scaled in the same order.
#pragma once
#include "kernels/linear/code_tiles_impl.h"
#include "kernels/linear/peak_impl.h"

namespace helm {
namespace {

// Eight columns of two rows. Sums of a register: of the first row with either token, then of the second. Activations:
// as pack_matrices leaves them; where a block's last token is alone, what follows it is multiplied as well, and
// dropped: input_size leaves room for it.
struct MatrixLanes {
  static constexpr int tokens = 2, registers = 2 * kVectors, bias = 0;
  static constexpr size_t columns = 8, run_size = ByteLanes::run_size, scale_at = 8;
  template <Format F>
  static constexpr int lowered = ByteLanes::lowered<F>;

  template <Format F, class Use>
  HELM_INLINE static void each(const Codes<F>& code, size_t s, const Use& use) {
    I even[kVectors];
    ByteLanes::each<F>(code, s, [&](size_t q, int i, I w) HELM_LAMBDA {
      if (q % 2 == 0) {
        even[i] = w;
      } else {
        use(q / 2, 2 * i, vzip1q_s32(even[i], w));
        use(q / 2, 2 * i + 1, vzip2q_s32(even[i], w));
      }
    });
  }
  HELM_INLINE static void put_rows_of(const V* rows, float* to) {
    for (int i = 0; i < kVectors; ++i) {
      Simd::store(to + 2 * i * Simd::lanes, vzip1q_f32(rows[i], rows[i]));
      Simd::store(to + (2 * i + 1) * Simd::lanes, vzip2q_f32(rows[i], rows[i]));
    }
  }
  template <Format F>
  HELM_INLINE static I start(const int32_t*, size_t, size_t, int) {
    return Simd::every(0);
  }
  HELM_INLINE static I factor(const int32_t* x, int width, int step, int g) {
    return Simd::words(x + step * 2 * width + 4 * g);
  }
  HELM_INLINE static V value(const int32_t* x, int g) { return vreinterpretq_f32_s32(two_twice(x, g)); }
  HELM_INLINE static I two_twice(const int32_t* x, int g) {
    const int32x2_t two = vld1_s32(x + 2 * g);
    return vcombine_s32(two, two);
  }
  HELM_INLINE static I dot(I sum, I codes, I x) {
    return vmmlaq_s32(sum, vreinterpretq_s8_s32(codes), vreinterpretq_s8_s32(x));
  }
  HELM_INLINE static I whole(I sum) { return sum; }
  template <int P, int T>
  HELM_INLINE static void put(const V (*total)[P * registers], const Sums& sums) {
    V rows[T][P * kVectors];
#pragma GCC unroll 16
    for (int t = 0; t < T; ++t)
#pragma GCC unroll 16
      for (int i = 0; i < P * kVectors; ++i) {
        const V first = total[t / 2][2 * i], second = total[t / 2][2 * i + 1];
        rows[t][i] = t % 2 == 0 ? vuzp1q_f32(first, second) : vuzp2q_f32(first, second);
      }
    put_rows<T, P * kVectors>(rows, sums.at, sums.step, P * kPanel, sums.accumulate);
  }
};

void linear_matrices(const LinearArgs& a) {
  with_code_format(a.format, [&](auto format) { multiply_all<CodeProduct<format.value, MatrixLanes>>(a); });
}

// Four times two quads of every token, and their sums.
inline void put_matrices(const Run& run, size_t width, size_t token, int32_t* to) {
  for (size_t q = 0; q < kRun / 4; ++q) to[(q / 2 * width + token) * 2 + q % 2] = quad_of(run, q);
  put_byte_sums(run, width, to + token);
}

void pack_matrices(const PackArgs& a) { pack_runs(a, kTogether, MatrixLanes::run_size, kByteMost, put_matrices); }

void peak_matrices(size_t rounds) {
  step_chains(rounds, Simd::every(0), Simd::every(0x01010101), Simd::every(0x01010101),
              [](I sum, I a, I b) HELM_LAMBDA { return MatrixLanes::dot(sum, a, b); });
}

}  // namespace
}  // namespace helm
