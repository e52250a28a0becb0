#include "formats/finite.h"

#include "formats/shape.h"

namespace helm {
namespace {

bool finite_blocks(const uint8_t* row, Format format, size_t columns) {
  const FormatFacts& block = facts_of(format);
  if (format == Format::mxfp4) {
    for (size_t first = 0; first < columns; first += block.columns, row += block.bytes)
      if (*row == 255) return false;
    return true;
  }
  for (size_t first = 0; first < columns; first += block.columns, row += block.bytes)
    for (size_t i = 0; i < 1u + block.minimum; ++i) {
      uint16_t half;
      memcpy(&half, row + block.scale_at + 2 * i, 2);
      if ((half & exponent_of(Format::f16)) == exponent_of(Format::f16)) return false;
    }
  return true;
}

}  // namespace

bool finite(const void* rows, Format format, size_t count, size_t columns) {
  if (format == Format::f32)
    return finite_values(static_cast<const uint32_t*>(rows), count * columns, exponent_of(format));
  if (!quantised(format))
    return finite_values(static_cast<const uint16_t*>(rows), count * columns,
                         static_cast<uint16_t>(exponent_of(format)));
  const auto* row = static_cast<const uint8_t*>(rows);
  for (size_t r = 0; r < count; ++r, row += row_size(format, columns))
    if (!finite_blocks(row, format, columns)) return false;
  return true;
}

}  // namespace helm
