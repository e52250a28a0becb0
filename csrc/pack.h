// Packing: a row-major matrix in any format to 16-row panels in any format.
#pragma once
#include "shape.h"

namespace helm {

// source: (rows, columns) row-major. target: [ceil(rows / 16)][columns][16], padding rows zero. Values are
// rounded to nearest even where the target is narrower.
void pack(const void* source, Format source_format, void* target, Format format, size_t rows, size_t columns);

// Row `row` of a packed matrix as f32, times one.
void unpack_row(const void* packed, Format format, size_t columns, size_t row, float* target);

}  // namespace helm
