// Where a run of a linear recurrence keeps what it computes, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/elementwise/small_product_impl.h"
#include "kernels/mixers.h"

namespace helm {
namespace {

// Parts of RecurrenceArgs::scratch; matrices of rows have `width` floats each, those of tokens kRecurrenceChunk.
struct Prepared {
  explicit Prepared(const RecurrenceArgs& a) : width(round_up(a.key_dim, kPanel)) {
    const size_t matrix = kRecurrenceChunk * width, square = kRecurrenceChunk * kRecurrenceChunk;
    q = a.scratch, k = q + matrix, turned = k + matrix, scaled = turned + matrix;
    keys = scaled + matrix, queries = keys + square, system = queries + square, weights = system + square;
    updates = weights + square;
    update_width = round_up(a.last - a.first, kPanel);
    decays = updates + kRecurrenceChunk * round_up(a.value_dim, kPanel);
  }

  size_t width, update_width;
  float *q, *k;             // [tokens][width]: as they are used
  float* turned;            // [key_dim][kRecurrenceChunk]: k; or columns of a state
  float* scaled;            // [tokens][width]: q, k or what states keep, times decays
  float *keys, *queries;    // [tokens][kRecurrenceChunk]: products of every k, and every q, with every k
  float *system, *weights;  // the same times decays, those of keys also times minus their token's rate
  float* updates;           // [tokens][update_width]
  float* decays;            // [kRecurrenceChunk]: sums of decays
};

}  // namespace
}  // namespace helm
