// One block of a quantised row, taken apart, and its bytes in a row-major row.
#pragma once
#include "formats/format.h"

namespace helm {

constexpr size_t kMostColumns = 256;  // of a block

// A value is scale * code (q8_0, code signed), scale * (code - 8) (q4_0), scale * code + minimum (q8, q4),
// half the scale's power of two * kDoubledLevels[code] (mxfp4),
// scale * scales[c / 32] * code - minimum * minima[c / 32] (q4_k), scale * signed scales[c / 16] * (code - 32) (q6_k).
struct CodeBlock {
  uint16_t scale = 0, minimum = 0;  // f16; of mxfp4 a byte
  uint8_t scales[16] = {}, minima[8] = {};
  uint8_t codes[kMostColumns] = {};
};

// `columns`: a multiple of 32, at most the format's. Bytes are GGUF's; q8: scale, minimum, 64 codes; q4: scale,
// minimum, then per 32 columns 16 bytes of which byte i holds the codes of columns i (low four bits) and i + 16.
CodeBlock read_block(Format format, const uint8_t* bytes, size_t columns);
void write_block(Format format, const CodeBlock& block, size_t columns, uint8_t* bytes);

// The first `count` values as f32, rounded once.
void values_of(Format format, const CodeBlock& block, size_t count, float* values);

}  // namespace helm
