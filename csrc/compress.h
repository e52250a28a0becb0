// q4: asymmetric 4-bit codes in groups of 64 columns of a row.
//
// Per panel of 16 rows, per group of 64 columns (the last may be shorter): 16 scales and 16 minima in f16, then
// per column 8 bytes, of which byte i holds the codes of rows i (low four bits) and i + 8. A panel follows the
// one before it, so that rows [a, b), both multiples of 16, are one range of bytes.
#pragma once
#include "pool.h"
#include "shape.h"

namespace helm {

constexpr size_t kGroup = 64;

// Bytes of 16 rows.
inline size_t q4_panel_size(size_t columns) {
  return product({columns / kGroup + (columns % kGroup != 0), 64}) + product({columns, 8});
}

inline size_t q4_size(size_t rows, size_t columns) {
  return product({rows / 16 + (rows % 16 != 0), q4_panel_size(columns)});
}

// source: (rows, columns) row-major. The minimum is rounded down to f16, the scale (largest - minimum) / 15 to
// nearest, codes to nearest. Values beyond f16 count as its largest, NaN as zero; no stored value expands to more
// than the largest f16.
void quantise(const void* source, Format from, void* target, size_t rows, size_t columns);

// q4 to packed panels [ceil(rows / 16)][columns][16], by all threads of the pool: each ascends through its share.
void decompress(Pool& pool, const void* source, void* target, Format to, size_t rows, size_t columns);

// q4 to (rows, columns) row-major f32, times one.
void dequantise(const void* source, float* target, size_t rows, size_t columns);

}  // namespace helm
