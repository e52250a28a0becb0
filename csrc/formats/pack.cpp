#include "formats/pack.h"

#include <vector>

#include "formats/finite.h"
#include "formats/panels.h"
#include "formats/quantise.h"

namespace helm {
namespace {

constexpr size_t kStrip = 64;  // columns per strip: 16 rows of it stay in L1 while they are interleaved

float widen_one(uint32_t bits, Format format) {
  if (format == Format::f32) return float_of(bits);
  const uint16_t half = static_cast<uint16_t>(bits);
  return format == Format::f16 ? widen_f16(half) : widen_bf16(half);
}

uint32_t narrow_one(float value, Format format) {
  if (format == Format::f32) return bits_of(value);
  return format == Format::f16 ? narrow_f16(value) : narrow_bf16(value);
}

uint32_t bits_at(const void* values, Format format, size_t index) {
  if (format == Format::f32) return static_cast<const uint32_t*>(values)[index];
  return static_cast<const uint16_t*>(values)[index];
}

// A panel of at most 16 rows. Returns whether all values are finite as they are stored: those that are not are neither
// in a format of less range.
template <class Source, class Target, class Convert>
bool pack_as(const Source* source, Target* target, Format to, size_t rows, size_t columns, const Convert& convert) {
  const auto exponent = static_cast<Target>(exponent_of(to));
  bool sound = true;
  if (rows < kPanel) memset(target, 0, columns * kPanel * sizeof(Target));
  for (size_t k0 = 0; k0 < columns; k0 += kStrip) {
    const size_t k1 = columns - k0 < kStrip ? columns : k0 + kStrip;
    for (size_t r = 0; r < rows; ++r) {
      const Source* row = source + r * columns;
      for (size_t k = k0; k < k1; ++k) target[k * kPanel + r] = convert(row[k]);
    }
    sound &= finite_values(target + k0 * kPanel, (k1 - k0) * kPanel, exponent);  // while the strip is in L1
  }
  return sound;
}

template <class Source, class Target>
bool pack_between(const void* source, Format from, void* target, Format to, size_t rows, size_t columns) {
  const auto* in = static_cast<const Source*>(source);
  auto* out = static_cast<Target*>(target);
  if (from == to) return pack_as(in, out, to, rows, columns, [](Source bits) { return static_cast<Target>(bits); });
  return pack_as(in, out, to, rows, columns,
                 [from, to](Source bits) { return static_cast<Target>(narrow_one(widen_one(bits, from), to)); });
}

bool pack_plain(const void* source, Format from, void* target, Format to, size_t rows, size_t columns) {
  const bool wide_in = from == Format::f32, wide_out = to == Format::f32;
  if (wide_in && wide_out) return pack_between<uint32_t, uint32_t>(source, from, target, to, rows, columns);
  if (wide_in) return pack_between<uint32_t, uint16_t>(source, from, target, to, rows, columns);
  if (wide_out) return pack_between<uint16_t, uint32_t>(source, from, target, to, rows, columns);
  return pack_between<uint16_t, uint16_t>(source, from, target, to, rows, columns);
}

// Calls visit(block, first column, count, count in whole runs) for the blocks of a row.
template <class Visit>
void each_block(Format format, size_t columns, const Visit& visit) {
  const size_t width = facts_of(format).columns;
  for (size_t i = 0; i * width < columns; ++i) {
    const size_t count = columns - i * width < width ? columns - i * width : width;
    visit(i, i * width, count, round_up(count, kRun));
  }
}

// Where block `index` of the panel of a row begins.
template <class Bytes>
Bytes* panel_block(Bytes* packed, Format format, size_t columns, size_t row, size_t index) {
  return packed + row / kPanel * kPanel * row_size(format, columns) + index * kPanel * facts_of(format).bytes;
}

const uint8_t* row_at(const void* source, Format format, size_t columns, size_t row) {
  return static_cast<const uint8_t*>(source) + row * row_size(format, columns);
}

// A panel of rows of floats, whatever the source's format, quantised.
void pack_quantised(const uint8_t* source, Format from, uint8_t* target, Format to, size_t rows, size_t columns) {
  memset(target, 0, packed_size(to, rows, columns));
  std::vector<float> values(columns);
  for (size_t row = 0; row < rows; ++row) {
    const uint8_t* bytes = row_at(source, from, columns, row);
    if (from != to) widen_row(bytes, from, columns, values.data());
    each_block(to, columns, [&](size_t i, size_t first, size_t count, size_t runs) {
      const CodeBlock block = from == to ? read_block(to, bytes + i * facts_of(to).bytes, runs)
                                         : quantise_block(to, values.data() + first, count);
      put_block(to, block, runs, row % kPanel, panel_block(target, to, columns, row, i));
    });
  }
}

bool pack_dequantised(const uint8_t* source, Format from, void* target, Format to, size_t rows, size_t columns) {
  std::vector<float> values(rows * columns);
  for (size_t r = 0; r < rows; ++r)
    widen_row(row_at(source, from, columns, r), from, columns, values.data() + r * columns);
  return pack_plain(values.data(), Format::f32, target, to, rows, columns);
}

bool pack_panel(const uint8_t* source, Format from, uint8_t* target, Format to, size_t rows, size_t columns) {
  if (quantised(to)) {
    pack_quantised(source, from, target, to, rows, columns);
    return finite(source, from, rows, columns);
  }
  if (quantised(from)) return pack_dequantised(source, from, target, to, rows, columns);
  return pack_plain(source, from, target, to, rows, columns);
}

}  // namespace

bool pack(const void* source, Format from, void* target, Format to, size_t rows, size_t columns) {
  const auto* in = static_cast<const uint8_t*>(source);
  auto* out = static_cast<uint8_t*>(target);
  for (size_t row = 0; row < rows; row += kPanel) {
    const size_t count = rows - row < kPanel ? rows - row : kPanel;
    if (!pack_panel(in, from, out, to, count, columns)) return false;
    in += count * row_size(from, columns);
    out += packed_size(to, kPanel, columns);
  }
  return true;
}

void quantise(const float* source, void* target, Format format, size_t rows, size_t columns) {
  auto* to = static_cast<uint8_t*>(target);
  for (size_t row = 0; row < rows; ++row, source += columns, to += row_size(format, columns))
    each_block(format, columns, [&](size_t i, size_t first, size_t count, size_t runs) {
      write_block(format, quantise_block(format, source + first, count), runs, to + i * facts_of(format).bytes);
    });
}

void unpack_row(const void* packed, Format format, size_t columns, size_t row, float* target) {
  if (quantised(format)) {
    const auto* bytes = static_cast<const uint8_t*>(packed);
    return each_block(format, columns, [&](size_t i, size_t first, size_t count, size_t runs) {
      const uint8_t* at = panel_block(bytes, format, columns, row, i);
      values_of(format, take_block(format, at, runs, row % kPanel), count, target + first);
    });
  }
  const size_t first = row / kPanel * columns * kPanel + row % kPanel;
  for (size_t k = 0; k < columns; ++k) target[k] = widen_one(bits_at(packed, format, first + k * kPanel), format);
}

void copy_row(const void* packed, Format format, size_t columns, size_t row, void* target) {
  auto* to = static_cast<uint8_t*>(target);
  const auto* bytes = static_cast<const uint8_t*>(packed);
  if (quantised(format))
    return each_block(format, columns, [&](size_t i, size_t, size_t, size_t runs) {
      const uint8_t* at = panel_block(bytes, format, columns, row, i);
      write_block(format, take_block(format, at, runs, row % kPanel), runs, to + i * facts_of(format).bytes);
    });
  const size_t width = size_of(format), first = row / kPanel * columns * kPanel + row % kPanel;
  for (size_t k = 0; k < columns; ++k) memcpy(to + k * width, bytes + (first + k * kPanel) * width, width);
}

void widen_row(const void* source, Format format, size_t columns, float* target) {
  if (!quantised(format)) {
    for (size_t k = 0; k < columns; ++k) target[k] = widen_one(bits_at(source, format, k), format);
    return;
  }
  const auto* bytes = static_cast<const uint8_t*>(source);
  each_block(format, columns, [&](size_t i, size_t first, size_t count, size_t runs) {
    values_of(format, read_block(format, bytes + i * facts_of(format).bytes, runs), count, target + first);
  });
}

}  // namespace helm
