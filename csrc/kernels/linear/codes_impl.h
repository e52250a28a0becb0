// Codes<F>: a block of a packed panel in a quantised format (panels.h) in registers, for the instruction set whose Simd
// was included before.
//
// span: columns under one scale. scale(s), minimum(s): of 16 rows. pairs(s, use) calls use(p, i, w) with the codes of
// columns 2p and 2p + 1 of span s in the 32-bit lanes of register i, `offset` above what they stand for;
// four_pairs(s, q, use) with those of columns 8q to 8q + 7 alone.
#pragma once
#include "kernels/simd/ahead.h"
#include "kernels/simd/inlined.h"
#include "kernels/kernels.h"

namespace helm {
namespace {

using V = Simd::V;
using I = Simd::I;
constexpr int kVectors = kPanel / Simd::lanes;  // registers per packed column
constexpr size_t kLine = 64;                    // bytes

inline size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

HELM_INLINE void load_halves(const uint8_t* from, V* to) {
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) to[i] = Simd::load_f16(reinterpret_cast<const uint16_t*>(from) + i * Simd::lanes);
}

// Asks for the lines of a block's scales kAhead bytes further on.
template <size_t size>
HELM_INLINE void ask_for_scales(const uint8_t* block) {
#pragma GCC unroll 8
  for (size_t at = 0; at < size; at += kLine) __builtin_prefetch(block + at + kAhead);
}

// Register i of a line of codes; asks for the line kAhead bytes further on.
HELM_INLINE I line_at(const uint8_t* line, int i) {
  if (i == 0) __builtin_prefetch(line + kAhead);
  return Simd::words(line + i * Simd::lanes * 4);
}

// Eight columns of four bits: pairs 4l to 4l + 3.
template <class Use>
HELM_INLINE void four_bit_line(const uint8_t* line, size_t l, const Use& use) {
  const I mask = Simd::every_word(15);
#pragma GCC unroll 16
  for (int i = 0; i < kVectors; ++i) {
    const I w = line_at(line, i);
    use(4 * l, i, Simd::both(w, mask));
    use(4 * l + 1, i, Simd::both(Simd::template down<4>(w), mask));
    use(4 * l + 2, i, Simd::both(Simd::template down<8>(w), mask));
    use(4 * l + 3, i, Simd::template down<12>(w));
  }
}

// kDoubledLevels, without sign.
alignas(16) constexpr uint8_t kUnsignedLevels[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// A format's pairs, four by four.
template <class C>
struct FourByFour {
  template <class Use>
  HELM_INLINE void pairs(size_t s, const Use& use) const {
#pragma GCC unroll 4
    for (size_t q = 0; q < C::span / 8; ++q) static_cast<const C*>(this)->four_pairs(s, q, use);
  }
};

template <Format F>
struct Codes;

template <>
struct Codes<Format::q8_0> : FourByFour<Codes<Format::q8_0>> {
  static constexpr size_t span = 32, offset = 0;
  static constexpr bool minima = false;
  HELM_INLINE explicit Codes(const uint8_t* block) : codes(block + 32) {
    ask_for_scales<32>(block);
    load_halves(block, d);
  }
  HELM_INLINE void scale(size_t, V* to) const {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) to[i] = d[i];
  }
  HELM_INLINE void minimum(size_t, V*) const {}
  template <class Use>
  HELM_INLINE void four_pairs(size_t, size_t q, const Use& use) const {
#pragma GCC unroll 2
    for (size_t l = 2 * q; l < 2 * q + 2; ++l)
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
        const I w = line_at(codes + l * kLine, i);
        use(2 * l, i, Simd::template down_signed<8>(Simd::template up<8>(w)));
        use(2 * l + 1, i, Simd::template down_signed<8>(w));
      }
  }
  V d[kVectors];
  const uint8_t* codes;
};

template <>
struct Codes<Format::q4_0> : FourByFour<Codes<Format::q4_0>> {
  static constexpr size_t span = 32, offset = 8;
  static constexpr bool minima = false;
  HELM_INLINE explicit Codes(const uint8_t* block) : codes(block + 32) {
    ask_for_scales<32>(block);
    load_halves(block, d);
  }
  HELM_INLINE void scale(size_t, V* to) const {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) to[i] = d[i];
  }
  HELM_INLINE void minimum(size_t, V*) const {}
  template <class Use>
  HELM_INLINE void four_pairs(size_t, size_t q, const Use& use) const {
    four_bit_line(codes + q * kLine, q, use);
  }
  V d[kVectors];
  const uint8_t* codes;
};

// q8 and q4: one scale and one minimum for the block.
struct Groups {
  static constexpr size_t span = 32, offset = 0;
  static constexpr bool minima = true;
  HELM_INLINE explicit Groups(const uint8_t* block) : codes(block + 64) {
    ask_for_scales<64>(block);
    load_halves(block, d);
    load_halves(block + 32, low);
  }
  HELM_INLINE void scale(size_t, V* to) const {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) to[i] = d[i];
  }
  HELM_INLINE void minimum(size_t, V* to) const {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) to[i] = low[i];
  }
  V d[kVectors], low[kVectors];
  const uint8_t* codes;
};

template <>
struct Codes<Format::q8> : Groups, FourByFour<Codes<Format::q8>> {
  using Groups::Groups;
  template <class Use>
  HELM_INLINE void four_pairs(size_t s, size_t q, const Use& use) const {
    const I mask = Simd::every_word(255);
#pragma GCC unroll 2
    for (size_t l = 2 * q; l < 2 * q + 2; ++l)
#pragma GCC unroll 16
      for (int i = 0; i < kVectors; ++i) {
        const I w = line_at(codes + (s * 8 + l) * kLine, i);
        use(2 * l, i, Simd::both(w, mask));
        use(2 * l + 1, i, Simd::template down<8>(w));
      }
  }
};

template <>
struct Codes<Format::q4> : Groups, FourByFour<Codes<Format::q4>> {
  using Groups::Groups;
  template <class Use>
  HELM_INLINE void four_pairs(size_t s, size_t q, const Use& use) const {
    four_bit_line(codes + (s * 4 + q) * kLine, q, use);
  }
};

template <>
struct Codes<Format::q4_k> : FourByFour<Codes<Format::q4_k>> {
  static constexpr size_t span = 32, offset = 0;
  static constexpr bool minima = true;
  HELM_INLINE explicit Codes(const uint8_t* block) : six(block + 64), codes(block + 256) {
    ask_for_scales<256>(block);
    load_halves(block, d);
    load_halves(block + 32, low);
  }
  HELM_INLINE void scale(size_t s, V* to) const {
    uint8_t parts[kPanel];
    for (size_t r = 0; r < kPanel; ++r) parts[r] = six[s * 24 + r] & 63;
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) to[i] = Simd::mul(d[i], Simd::bytes(parts + i * Simd::lanes));
  }
  HELM_INLINE void minimum(size_t s, V* to) const {
    uint8_t parts[kPanel];
    for (size_t r = 0; r < kPanel; ++r) parts[r] = six[s * 24 + r] >> 6;
    V high[kVectors];
    Simd::nibbles(six + s * 24 + kPanel, high);
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      const V whole = Simd::fma(high[i], Simd::set(-4), Simd::sub(Simd::zero(), Simd::bytes(parts + i * Simd::lanes)));
      to[i] = Simd::mul(low[i], whole);
    }
  }
  template <class Use>
  HELM_INLINE void four_pairs(size_t s, size_t q, const Use& use) const {
    four_bit_line(codes + (s * 4 + q) * kLine, q, use);
  }
  V d[kVectors], low[kVectors];
  const uint8_t *six, *codes;
};

template <>
struct Codes<Format::q6_k> : FourByFour<Codes<Format::q6_k>> {
  static constexpr size_t span = 16, offset = 32;
  static constexpr bool minima = false;
  HELM_INLINE explicit Codes(const uint8_t* block) : scales(block + 32), codes(block + 288) {
    ask_for_scales<288>(block);
    load_halves(block, d);
  }
  HELM_INLINE void scale(size_t s, V* to) const {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i)
      to[i] = Simd::mul(d[i], Simd::signed_bytes(scales + s * kPanel + i * Simd::lanes));
  }
  HELM_INLINE void minimum(size_t, V*) const {}
  // Pair 4q + n: low bits from nibble n of line q, high bits from bits 8q + 2n of the third line.
  template <class Use>
  HELM_INLINE void four_pairs(size_t s, size_t q, const Use& use) const {
    const uint8_t* lines = codes + s * 3 * kLine;
    const I low = Simd::every_word(15), high = Simd::every_word(48);
    const auto join = [&](I nibble, I crumb)
                          HELM_LAMBDA { return Simd::either(Simd::both(nibble, low), Simd::both(crumb, high)); };
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      const I w = line_at(lines + q * kLine, i), both = line_at(lines + 2 * kLine, i);
      const I h = q == 0 ? Simd::template up<4>(both) : Simd::template down<4>(both);
      use(4 * q, i, join(w, h));
      use(4 * q + 1, i, join(Simd::template down<4>(w), Simd::template down<2>(h)));
      use(4 * q + 2, i, join(Simd::template down<8>(w), Simd::template down<4>(h)));
      use(4 * q + 3, i, join(Simd::template down<12>(w), Simd::template down<6>(h)));
    }
  }
  V d[kVectors];
  const uint8_t *scales, *codes;
};

// Codes are looked up in a table of levels.
template <>
struct Codes<Format::mxfp4> : FourByFour<Codes<Format::mxfp4>> {
  static constexpr size_t span = 32, offset = kLevelsOffset;
  static constexpr bool minima = false;
  HELM_INLINE explicit Codes(const uint8_t* block) : codes(block + kPanel) {
    ask_for_scales<kPanel>(block);
    const V shift = Simd::set(12582912.0f - 128.0f), one = Simd::set(1.0f);  // as in exp_of; 0 and 1 give zero
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i)
      d[i] = Simd::scale_exponent(one, Simd::add(Simd::max(Simd::bytes(block + i * Simd::lanes), one), shift));
  }
  HELM_INLINE void scale(size_t, V* to) const {
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) to[i] = d[i];
  }
  HELM_INLINE void minimum(size_t, V*) const {}
  template <class Use>
  HELM_INLINE void four_pairs(size_t, size_t q, const Use& use) const {
    const I low = Simd::every_word(0x0f0f), byte = Simd::every_word(255);
#pragma GCC unroll 16
    for (int i = 0; i < kVectors; ++i) {
      const I w = line_at(codes + q * kLine, i);
      const I even = Simd::looked_up(kUnsignedLevels, Simd::both(w, low));
      const I odd = Simd::looked_up(kUnsignedLevels, Simd::both(Simd::template down<4>(w), low));
      use(4 * q, i, Simd::both(even, byte));
      use(4 * q + 1, i, Simd::both(odd, byte));
      use(4 * q + 2, i, Simd::template down<8>(even));
      use(4 * q + 3, i, Simd::template down<8>(odd));
    }
  }
  V d[kVectors];
  const uint8_t* codes;
};

// A quantised format as a type, so that what is called with it is compiled for it.
template <Format F>
struct CodeFormat {
  static constexpr Format value = F;
};

// Calls use(CodeFormat<F>) with the quantised format F that `format` is.
template <class Use>
void with_code_format(Format format, const Use& use) {
  switch (format) {
    case Format::q8_0:
      return use(CodeFormat<Format::q8_0>());
    case Format::q4_0:
      return use(CodeFormat<Format::q4_0>());
    case Format::q4_k:
      return use(CodeFormat<Format::q4_k>());
    case Format::q6_k:
      return use(CodeFormat<Format::q6_k>());
    case Format::q8:
      return use(CodeFormat<Format::q8>());
    case Format::mxfp4:
      return use(CodeFormat<Format::mxfp4>());
    default:
      return use(CodeFormat<Format::q4>());
  }
}

// Where the block of columns that has column `k` begins in a panel.
template <Format F>
const char* panel_at(const LinearArgs& a, size_t panel, size_t k) {
  const size_t width = quantised(F) ? facts_of(F).columns : 1;
  return static_cast<const char*>(a.weights) +
         kPanel * (panel * row_size(F, a.columns) + row_size(F, k / width * width));
}

// Lines of some panels that are asked for step by step, into L2, while others are multiplied.
class LinesAhead {
 public:
  LinesAhead() = default;
  LinesAhead(const char* first, size_t stride, size_t panels, size_t lines, size_t steps)
      : next_(first), stride_(stride), panels_(panels), left_(lines), each_((lines + steps - 1) / steps) {}

  HELM_INLINE void ask() { ask_for(smaller(each_, left_)); }
  HELM_INLINE void ask_for_rest() { ask_for(left_); }

 private:
  HELM_INLINE void ask_for(size_t lines) {
    for (size_t panel = 0; panel < panels_; ++panel)
      for (size_t line = 0; line < lines; ++line) __builtin_prefetch(next_ + panel * stride_ + line * kLine, 0, 2);
    next_ += lines * kLine, left_ -= lines;
  }

  const char* next_ = nullptr;
  size_t stride_ = 0, panels_ = 0, left_ = 0, each_ = 0;
};

// Part `part` of `parts` of columns [k, k + depth) of up to `panels` panels from one on, in so many steps.
template <Format F>
LinesAhead lines_ahead(const LinearArgs& a, size_t panel, size_t panels, size_t k, size_t depth, size_t part,
                       size_t parts, size_t steps) {
  if (panel >= a.last_panel) return {};
  const size_t lines = kPanel * row_size(F, depth) / kLine, begin = lines * part / parts;
  return {panel_at<F>(a, panel, k) + begin * kLine, kPanel * row_size(F, a.columns),
          smaller(panels, a.last_panel - panel), lines * (part + 1) / parts - begin, steps};
}

// Where block `index` of a panel begins.
template <Format F>
inline const uint8_t* codes_block(const uint8_t* panel, size_t index) {
  return panel + index * kPanel * facts_of(F).bytes;
}

// What a pair of codes stands for under a scale and, where the format has one, a minimum.
template <Format F>
HELM_INLINE void pair_values(I pair, V scale, V low, V& even, V& odd) {
  using C = Codes<F>;
  const I level = C::offset == 0 ? pair : Simd::sub_words(pair, Simd::every_word(C::offset));
  even = Simd::low_words(level), odd = Simd::high_words(level);
  even = C::minima ? Simd::fma(even, scale, low) : Simd::mul(even, scale);
  odd = C::minima ? Simd::fma(odd, scale, low) : Simd::mul(odd, scale);
}

// Runs of 32 columns [first, last) of a panel to f32 [32 (last - first)][16].
template <Format F>
void widen_runs(const uint8_t* panel, size_t first, size_t last, float* target) {
  using C = Codes<F>;
  constexpr size_t runs = facts_of(F).columns / kRun, spans = kRun / C::span;
  for (size_t run = first; run < last; ++run) {
    const C code(codes_block<F>(panel, run / runs));
    for (size_t s = run % runs * spans; s < (run % runs + 1) * spans; ++s, target += C::span * kPanel) {
      V scale[kVectors], low[kVectors];
      code.scale(s, scale);
      code.minimum(s, low);
      code.pairs(s, [&](size_t p, int i, I w) HELM_LAMBDA {
        float* at = target + 2 * p * kPanel + i * Simd::lanes;
        V even, odd;
        pair_values<F>(w, scale[i], low[i], even, odd);
        Simd::store(at, even);
        Simd::store(at + kPanel, odd);
      });
    }
  }
}

}  // namespace
}  // namespace helm
