// f32 values to a block of a quantised format.
#pragma once
#include "formats/blocks.h"

namespace helm {

// `count` values, as many as the format's block has or, in q8 and q4, fewer. Values beyond f16's count as its largest,
// NaN as zero. q8_0 and q4_0 give the bytes of GGUF's reference for finite values. q8 and q4: the minimum is rounded
// down to f16, the scale (largest - minimum) / (codes - 1) to nearest, codes to nearest, and quantising what was stored
// changes nothing; no stored value is beyond f16. q4_k and q6_k: scales are searched for least squares, weighted as
// GGUF's reference weights them.
CodeBlock quantise_block(Format format, const float* values, size_t count);

// The parts of it, of values that are finite f16 numbers in size.
// q8, q4; there is room for a multiple of 32 values, which become the stored ones.
CodeBlock quantise_group(float* values, size_t count, int largest_code);
CodeBlock quantise_q4_k(const float* values);
CodeBlock quantise_q6_k(const float* values);

// Least and largest of `count` values, a multiple of 8: eight at a time, because the order may not change within one.
struct Bounds {
  float low, high;
};
Bounds bounds_of(const float* values, size_t count);

// To the nearest integer, of a magnitude below 2^22.
inline float nearest(float value) { return (value + 12582912.0f) - 12582912.0f; }

}  // namespace helm
