// How far ahead of a stream of bytes kernels ask for its lines.
#pragma once
#include <cstddef>

namespace helm {

// Bytes: hardware prefetchers stop at each page and ramp up again, so that lines of the next one are asked for early.
// A page on the processors of AMD and Arm, half of one on Intel's, where a whole one streams up to 1.4 times slower.
extern const size_t kAhead;

}  // namespace helm
