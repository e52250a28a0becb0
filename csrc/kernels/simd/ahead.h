// How far ahead of a stream of bytes kernels ask for its lines.
#pragma once
#include <cstddef>

namespace helm {

constexpr size_t kAhead = 4096;  // bytes: hardware prefetchers stop at each page and ramp up again

}  // namespace helm
