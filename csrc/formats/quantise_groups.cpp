// q8 and q4: codes between a minimum and what a scale adds to it.
#include <algorithm>

#include "formats/quantise.h"

namespace helm {
namespace {

constexpr float kLargestHalf = 65504.0f;
constexpr int kRounds = 4;  // until quantising what was stored changes nothing; one nearly always does

// The largest f16 not above `value`, which is within its range.
uint16_t floor_f16(float value) {
  const uint16_t half = narrow_f16(value);
  if (widen_f16(half) <= value) return half;
  if (half & 0x8000u) return static_cast<uint16_t>(half + 1);
  return half == 0 ? uint16_t{0x8001} : static_cast<uint16_t>(half - 1);
}

uint16_t scale_for(float minimum, float largest, float codes) {
  uint16_t scale = narrow_f16((largest - minimum) / codes);
  while (minimum + codes * widen_f16(scale) > kLargestHalf) --scale;
  return scale;
}

void quantise_once(const float* values, size_t count, float codes, CodeBlock& to) {
  const auto [low, high] = bounds_of(values, count);
  to.minimum = floor_f16(low);
  const float minimum = widen_f16(to.minimum);
  to.scale = scale_for(minimum, high, codes);
  const float scale = widen_f16(to.scale), divisor = scale == 0 ? 1 : scale, limit = scale == 0 ? 0 : codes;
  for (size_t c = 0; c < count; ++c) {
    const float code = nearest((values[c] - minimum) / divisor);
    to.codes[c] = static_cast<uint8_t>(static_cast<int>(code < limit ? code : limit));
  }
}

bool same(const CodeBlock& a, const CodeBlock& b, size_t count) {
  return a.scale == b.scale && a.minimum == b.minimum && std::equal(a.codes, a.codes + count, b.codes);
}

}  // namespace

CodeBlock quantise_group(float* values, size_t count, int largest_code) {
  const size_t padded = (count + kRun - 1) / kRun * kRun;
  for (size_t c = count; c < padded; ++c) values[c] = values[0];
  for (size_t c = 0; c < padded; ++c) values[c] += 0.0f;  // no negative zero
  CodeBlock block, again;
  quantise_once(values, padded, static_cast<float>(largest_code), block);
  for (int round = 1; round < kRounds; ++round) {
    values_of(Format::q8, block, padded, values);
    quantise_once(values, padded, static_cast<float>(largest_code), again);
    if (same(block, again, padded)) break;
    block = again;
  }
  std::fill(block.codes + count, block.codes + padded, uint8_t{0});
  return block;
}

}  // namespace helm
