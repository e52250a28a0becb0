// How far ahead of a stream of bytes kernels ask for its lines.
#pragma once
#include <cstddef>

namespace helm {

// Bytes: hardware prefetchers stop at each page and ramp up again. Half a page, as a whole one is up to 1.4 times slower
// on a Granite Rapids.
constexpr size_t kAhead = 2048;

}  // namespace helm
