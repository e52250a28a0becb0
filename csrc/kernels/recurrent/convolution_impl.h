// Depthwise convolutions over time, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/elementwise/vector_math_impl.h"
#include "kernels/mixers.h"

namespace helm {
namespace {

constexpr size_t kChannelsTogether = 256;  // a line of pages per token; what a state becomes waits on the stack

// Channels [first, first + n), the last token first: outputs take the places of inputs that no other token needs.
template <size_t K>
void convolve_channels(const ConvolveArgs& a, size_t first, size_t n) {
  float kept[(K - 1) * kChannelsTogether];
  const auto input = [&](size_t t, size_t back) {  // of the token `back` before t
    return t >= back ? a.x + (t - back) * a.stride + first : a.state + (K - 1 + t - back) * a.channels + first;
  };
  for (size_t j = 0; j < K - 1; ++j)
    memcpy(kept + j * kChannelsTogether, input(a.tokens, K - 1 - j), n * sizeof(float));
  for (size_t t = a.tokens; t-- > 0;) {
    const float* inputs[K];
    for (size_t j = 0; j < K; ++j) inputs[j] = input(t, K - 1 - j);
    for_registers(a.x + t * a.stride + first, n, [&](V, size_t i, size_t count) {
      V sum = a.bias == nullptr ? Simd::zero() : load_count(a.bias + first, i, count);
#pragma GCC unroll 4
      for (size_t j = 0; j < K; ++j)
        sum = Simd::fma(load_count(a.weight + j * a.channels + first, i, count), load_count(inputs[j], i, count), sum);
      return a.silu ? gated_by_sigmoid(sum, sum) : sum;
    });
  }
  for (size_t j = 0; j < K - 1; ++j)
    memcpy(a.state + j * a.channels + first, kept + j * kChannelsTogether, n * sizeof(float));
}

void convolve(const ConvolveArgs& a) {
  for (size_t first = a.first; first < a.last; first += kChannelsTogether) {
    const size_t n = a.last - first < kChannelsTogether ? a.last - first : kChannelsTogether;
    if (a.taps == 2) convolve_channels<2>(a, first, n);
    if (a.taps == 3) convolve_channels<3>(a, first, n);
    if (a.taps == 4) convolve_channels<4>(a, first, n);
  }
}

}  // namespace
}  // namespace helm
