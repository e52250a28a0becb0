// Pairs of bf16, as BF16 units multiply them: of neighbouring columns, for the instruction set whose Simd was included
// before.
#pragma once
#include <type_traits>

#include "kernels/linear/codes_impl.h"

namespace helm {
namespace {

inline size_t pairs_of(size_t columns) { return (columns + 1) / 2; }

// Two columns of a panel as pairs.
inline void pair_two(const uint16_t* columns, int32_t* to) {
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) Simd::store_words(to + i * Simd::lanes, Simd::pairs_of_columns(columns, i));
}

// `depth` columns of a panel as pairs, `step` apart; an odd last one is paired with zeros.
inline void pair_columns(const uint16_t* columns, size_t depth, size_t step, int32_t* to) {
  for (size_t k = 0; k + 2 <= depth; k += 2, to += step) pair_two(columns + k * kPanel, to);
  if (depth % 2 == 0) return;
  alignas(64) uint16_t last[2 * kPanel] = {};
  memcpy(last, columns + (depth - 1) * kPanel, kPanel * sizeof(uint16_t));
  pair_two(last, to);
}

// What the codes of formats of four bits stand for under a scale of 1; null where codes are no four bits in a line, or
// the instruction set looks up no floats.
alignas(64) constexpr float kFromZero[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
alignas(64) constexpr float kFromMinusEight[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
// kDoubledLevels.
alignas(64) constexpr float kLevels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
template <Format F>
constexpr const float* kNumbersOfCodes = !Simd::float_tables                    ? nullptr
                                         : F == Format::q4_0                    ? kFromMinusEight
                                         : F == Format::q4 || F == Format::q4_k ? kFromZero
                                         : F == Format::mxfp4                   ? kLevels
                                                                                : nullptr;

// A line of codes of four bits as four lines of pairs, `step` apart. scale, low: of the rows of either half of a
// register, each twice.
template <Format F, class S = Simd>
HELM_INLINE void pair_nibbles(const uint8_t* line, const V (*scale)[2], const V (*low)[2], size_t step, int32_t* to) {
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i, to += Simd::lanes) {
    const I codes = line_at(line, i);
    const I halves[2] = {S::template half_of_words<false>(codes), S::template half_of_words<true>(codes)};
    const auto put = [&](auto pair) HELM_LAMBDA {
      V values[2];
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const V number = S::template looked_up_at<4 * pair>(kNumbersOfCodes<F>, halves[half]);
        values[half] =
            Codes<F>::minima ? Simd::fma(number, scale[i][half], low[i][half]) : Simd::mul(number, scale[i][half]);
      }
      Simd::store_words(to + pair * step, S::rounded_pairs(values[0], values[1]));
    };
    put(std::integral_constant<int, 0>());
    put(std::integral_constant<int, 1>());
    put(std::integral_constant<int, 2>());
    put(std::integral_constant<int, 3>());
  }
}

// Each number of a panel's rows twice, by register and half of it.
template <class S = Simd>
HELM_INLINE void halves_twice(const V* rows, V (*to)[2]) {
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    to[i][0] = S::template half_twice<false>(rows[i]);
    to[i][1] = S::template half_twice<true>(rows[i]);
  }
}

// A run of 32 columns of a panel as sixteen lines of pairs, a quarter of them at a time; beyond the last column they
// are zero. Quantised weights are rounded to bf16, to nearest even.
template <Format F>
class RunInPairs {
 public:
  static constexpr size_t quarters = 4;

  RunInPairs() = default;
  HELM_INLINE RunInPairs(const LinearArgs& a, size_t panel, size_t run)
      : from_(panel_at<F>(a, panel, run * kRun)), run_(run % runs), count_(smaller(kRun, a.columns - run * kRun)) {}

  // Quarters in ascending order; lines are `step` apart, and the first is the quarter's.
  HELM_INLINE void put(size_t quarter, size_t step, int32_t* to) {
    if constexpr (quantised(F)) {
      using C = Codes<F>;
      constexpr size_t in_span = C::span / 8;
      const C code(reinterpret_cast<const uint8_t*>(from_));
      const size_t s = run_ * (kRun / C::span) + quarter / in_span;
      if (quarter % in_span == 0) {
        code.scale(s, scale_);
        code.minimum(s, low_);
        if constexpr (kNumbersOfCodes<F> != nullptr) {
          halves_twice(scale_, scale_twice_);
          if constexpr (C::minima) halves_twice(low_, low_twice_);
        }
      }
      if constexpr (kNumbersOfCodes<F> != nullptr)
        return pair_nibbles<F>(code.codes + (s * 4 + quarter) * kLine, scale_twice_, low_twice_, step, to);
      code.four_pairs(s, quarter % in_span, [&](size_t p, int i, I w) HELM_LAMBDA {
        V even, odd;
        pair_values<F>(w, scale_[i], low_[i], even, odd);
        Simd::store_words(to + p % 4 * step + i * Simd::lanes, Simd::pair(even, odd));
      });
    } else {
      const auto* columns = reinterpret_cast<const uint16_t*>(from_) + quarter * 8 * kPanel;
      if (count_ == kRun) {
#pragma GCC unroll 4
        for (size_t p = 0; p < 4; ++p) pair_two(columns + 2 * p * kPanel, to + p * step);
        return;
      }
      const size_t count = count_ > quarter * 8 ? smaller(8, count_ - quarter * 8) : 0;
      pair_columns(columns, count, step, to);
      for (size_t p = pairs_of(count); p < 4; ++p) memset(to + p * step, 0, kPanel * sizeof(int32_t));
    }
  }

 private:
  static constexpr size_t runs = quantised(F) ? facts_of(F).columns / kRun : 1;
  const char* from_ = nullptr;
  size_t run_ = 0, count_ = 0;
  V scale_[kVectors], low_[kVectors], scale_twice_[kVectors][2], low_twice_[kVectors][2];
};

// Calls use(format) with the format of weights, bf16 or a quantised one, as a type.
template <class Use>
void with_paired_format(Format format, const Use& use) {
  if (format == Format::bf16) return use(CodeFormat<Format::bf16>());
  with_code_format(format, use);
}

// To bf16, to nearest even.
inline void round_strip(const float* x, size_t n, uint16_t* strip) {
  size_t i = 0;
  for (; i + Simd::lanes <= n; i += Simd::lanes) Simd::store_bf16(strip + i, Simd::load(x + i));
  for (; i < n; ++i) strip[i] = narrow_bf16(x[i]);
}

}  // namespace
}  // namespace helm
