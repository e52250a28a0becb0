// Sizes of user-given shapes, with overflow checked.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <stdexcept>

#include "format.h"

namespace helm {

// Throws std::invalid_argument when the product does not fit in a size.
inline size_t product(std::initializer_list<size_t> factors) {
  size_t total = 1;
  for (const size_t factor : factors)
    if (__builtin_mul_overflow(total, factor, &total)) throw std::invalid_argument("a shape is too large");
  return total;
}

// Bytes of a packed (rows, columns) matrix: rows are padded to a whole panel of 16.
inline size_t packed_size(Format format, size_t rows, size_t columns) {
  return product({rows / 16 + (rows % 16 != 0), 16, row_size(format, columns)});
}

}  // namespace helm
