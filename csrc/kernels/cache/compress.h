// Expansion of matrices in 4-bit groups (q4, panels.h) to plain formats.
#pragma once
#include "runtime/pool.h"
#include "formats/shape.h"

namespace helm {

// q4 to packed panels [ceil(rows / 16)][columns][16], by all threads of the pool: each ascends through its share.
void decompress(Pool& pool, const void* source, void* target, Format to, size_t rows, size_t columns);

}  // namespace helm
