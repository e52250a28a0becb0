// Networks that a router chooses for every token: products grouped by expert, shared by the threads of a pool.
//
// Rows are sorted by expert, so that every matrix is read once for all of its rows, and multiplied by the kernel that a
// linear layer of so many rows has (linear.h: what activations are rounded to depends on that number). Panels of all
// experts together are cut into shares of the same cost. An output is the sum over a token's experts, in ascending
// order of their index, each a product of weight and outcome added by an FMA: the number of threads changes no bit.
#pragma once
#include <cstdint>
#include <optional>

#include "kernels/linear/linear.h"
#include "kernels/mixers.h"

namespace helm {

// One matrix of every expert. Packed weights of experts that no row chooses may be anything, so that experts may lie in
// slots that pointers are written for before a pass.
struct ExpertMatrix {
  const void* const* weights = nullptr;  // [experts]
  Format format = Format::f32;
  size_t rows = 0, columns = 0;
  const float* bias = nullptr;  // [experts][rows] or null

  size_t panels() const { return (rows + kPanel - 1) / kPanel; }
};

struct ExpertLayer {
  size_t experts = 0;
  std::optional<ExpertMatrix> gate;  // of up's shape and format
  ExpertMatrix up, down;
  Activation activation = Activation::silu;
  float limit = 0;            // of MixerKernels::activate_within; infinity: none
  bool input_scaled = false;  // weights multiply an expert's input, not its outcome
  Activations activations = Activations::int16;
};

// Of every token `chosen` experts, ascending, none twice, and their weights. A negative one is left out: it is computed
// elsewhere.
struct ExpertChoice {
  const int32_t* ids;    // [tokens][chosen]
  const float* weights;  // [tokens][chosen]
  size_t chosen;
};

constexpr size_t kWaveRows = 1024;  // rows whose activations are kept at once, if no expert has more

// Throws std::invalid_argument naming the first inconsistency.
void check(const ExpertLayer& layer);

// Floats, 64-byte aligned, for passes of up to `tokens` tokens.
size_t experts_workspace(const ExpertLayer& layer, size_t chosen, size_t tokens);

// Of each thread of the pool: Pool::reserve.
size_t experts_scratch(const ExpertLayer& layer);

// y[tokens][down.rows] = (or +=) the weighted networks of x[tokens][up.columns], by all threads of a pool, each of
// which calls this; x and the choice are there before, y after a barrier.
void experts_by_all(const Kernels& k, Pool& pool, size_t thread, const ExpertLayer& layer, const ExpertChoice& choice,
                    const float* x, float* y, size_t tokens, bool accumulate, float* workspace);

}  // namespace helm
