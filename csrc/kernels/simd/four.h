// What instruction sets of four lanes share.
#pragma once
#include "formats/format.h"

namespace helm {
namespace {

// Simd derives from it.
template <class Simd>
struct FourLanes {
  static auto words(const void* p) {
    typename Simd::I v;
    memcpy(&v, p, sizeof(v));
    return v;
  }
  template <class I>
  static void store_words(void* p, I v) {
    memcpy(p, &v, sizeof(v));
  }
  template <class I>
  static I dot_every(I sum, I a, const int32_t* b) {
    return Simd::dot(sum, a, Simd::every(*b));
  }
};

}  // namespace
}  // namespace helm
