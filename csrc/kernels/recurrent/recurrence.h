// Convolutions and linear recurrences of several sequences, shared by the threads of a pool.
#pragma once
#include <vector>

#include "kernels/mixers.h"
#include "runtime/pool.h"

namespace helm {

// What is the same for all sequences of a recurrent mixer.
struct RecurrenceShape {
  size_t key_heads, value_heads;  // key head j serves r = value_heads / key_heads: [j * r, (j + 1) * r)
  size_t key_dim, value_dim;
  bool per_dimension, corrects, normalised;
  bool tiled;  // key head j serves value heads j, j + key_heads, j + 2 key_heads, ...
  float query_scale;
};

// Tokens of one sequence. Pointers are of its first token and head; see RecurrenceArgs.
struct RecurrenceRun {
  const float *q, *k, *v, *decay, *rate, *skip;
  float *out, *state;  // state [value_heads][key_dim][value_dim]
  size_t key_stride, value_stride, decay_stride, rate_stride, out_stride, tokens;
};

// Throws std::invalid_argument naming the first inconsistency.
void check(const RecurrenceShape& shape);

// This thread's heads, or columns of heads, of all runs. scratch: recurrence_scratch floats. Shares do not change bits.
void recur_share(const MixerKernels& k, size_t thread, size_t threads, const RecurrenceShape& shape,
                 const RecurrenceRun* runs, size_t count, float* scratch);

// This thread's channels of so many.
Range channels_of(size_t channels, size_t thread, size_t threads);

// This thread's channels of a convolution; first and last are those of all.
void convolve_share(const MixerKernels& k, size_t thread, size_t threads, ConvolveArgs args);

}  // namespace helm
