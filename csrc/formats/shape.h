// Sizes of user-given shapes, with overflow checked.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <stdexcept>

#include "formats/format.h"

namespace helm {

// Throws std::invalid_argument when the product does not fit in a size.
inline size_t product(std::initializer_list<size_t> factors) {
  size_t total = 1;
  for (const size_t factor : factors)
    if (__builtin_mul_overflow(total, factor, &total)) throw std::invalid_argument("a shape is too large");
  return total;
}

// Bytes of a packed (rows, columns) matrix: rows are padded to a whole panel.
inline size_t packed_size(Format format, size_t rows, size_t columns) {
  return product({rows / kPanel + (rows % kPanel != 0), kPanel, row_size(format, columns)});
}

}  // namespace helm
