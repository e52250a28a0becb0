// Rotation of neighbouring dimensions, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/mixers.h"

namespace helm {
namespace {

void rope_pairs(const float* x, const float* cos, const float* sin, size_t half, float* out) {
  for (size_t i = 0; i < half; ++i) {
    const float a = x[2 * i], b = x[2 * i + 1];
    out[2 * i] = a * cos[i] - b * sin[i];
    out[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

}  // namespace
}  // namespace helm
