// How far ahead of a stream of bytes kernels ask for its lines.
#pragma once
#include <cstddef>

namespace helm {

// Bytes: hardware prefetchers stop at each page and ramp up again, so that lines of the next one are asked for early.
// Half a page on Intel's servers from Redwood Cove on, where a whole one streams up to 1.4 times slower (measured on a
// Granite Rapids); a page on others, where half a one is 2 to 15 % slower (measured on an Emerald Rapids).
extern const size_t kAhead;

}  // namespace helm
