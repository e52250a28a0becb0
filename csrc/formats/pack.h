// Packing: row-major matrices of any format to 16-row panels of any format, and rows of those back.
#pragma once
#include "formats/shape.h"

namespace helm {

// source: (rows, columns) row-major, quantised rows as blocks (blocks.h). target: plain formats
// [ceil(rows / 16)][columns][16], quantised ones as panels.h says; padding rows are zero. Between plain formats values
// are rounded to nearest even, to quantised ones as quantise.h says, in the same quantised format bits are moved.
// Returns whether all values are finite, in both formats; where one is not, target has nothing that can be used.
bool pack(const void* source, Format source_format, void* target, Format format, size_t rows, size_t columns);

// Row-major f32 (rows, columns) to rows of blocks, as GGUF files have them: row_size(format, columns) bytes each.
void quantise(const float* source, void* target, Format format, size_t rows, size_t columns);

// Row `row` of a packed matrix as f32, times one.
void unpack_row(const void* packed, Format format, size_t columns, size_t row, float* target);

// Row `row` of a packed matrix as it is stored row-major: row_size(format, columns) bytes.
void copy_row(const void* packed, Format format, size_t columns, size_t row, void* target);

// A row-major row as f32.
void widen_row(const void* source, Format format, size_t columns, float* target);

}  // namespace helm
