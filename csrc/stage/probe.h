// Probes: kernels and plain reads, timed inside one parallel region with the barriers that a stage uses.
#pragma once
#include <utility>
#include <vector>

#include "kernels/attention/attention_divided.h"
#include "kernels/linear/linear.h"

namespace helm {

// Seconds of each of `repeats` products of `tokens` random rows, walking through `matrices` (equal shapes).
std::vector<double> time_linear(Pool& pool, const std::vector<Matrix>& matrices, size_t tokens, size_t repeats);

// Seconds of attention of the last `tokens` of `batch` sequences, causal, to all positions of spans, walking through
// `layers` of those.
std::vector<double> time_attention(Pool& pool, const Attention& shape, const std::vector<KvSpans>& layers, size_t batch,
                                   size_t tokens, size_t repeats);

// Seconds of the scores of `batch` sequences with `context` positions over transposed keys, walking through `keys`.
std::vector<double> time_scores(Pool& pool, const Attention& shape, const std::vector<const void*>& keys,
                                size_t context, size_t batch, size_t repeats);

// The same of their weighted sums of `values`.
std::vector<double> time_weighted(Pool& pool, const Attention& shape, const std::vector<const void*>& values,
                                  size_t context, size_t batch, size_t repeats);

// Seconds of plain reads of the whole buffer: one contiguous share per thread, or (piece > 0) piece after piece,
// each shared by all threads. bytes and piece are multiples of 64.
std::vector<double> time_read(Pool& pool, const char* data, size_t bytes, size_t repeats, size_t piece);

// How often each item of each job is taken when threads divide jobs one after the other, without waiting between them
// (Pool::divide): once, all jobs side by side.
std::vector<unsigned> times_taken(Pool& pool, const std::vector<size_t>& jobs, size_t least, size_t most);

// Products of numbers that a thread does in a round of time_peak; 0 where the instruction set has no such units.
size_t peak_products(InputKind kind);

// Seconds of each of `repeats` times `rounds` rounds of such products by every thread, in registers alone. Throws
// std::invalid_argument where the instruction set has no such units.
std::vector<double> time_peak(Pool& pool, InputKind kind, size_t rounds, size_t repeats);

}  // namespace helm
