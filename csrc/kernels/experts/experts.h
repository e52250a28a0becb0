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
#include "runtime/event.h"

namespace helm {

// One matrix of every expert. Packed weights of experts that no row chooses may be anything, so that experts may lie in
// slots that pointers are written for before a pass.
struct ExpertMatrix {
  const void* const* weights = nullptr;  // [experts]
  Format format = Format::f32;
  size_t rows = 0, columns = 0;
  const float* bias = nullptr;  // [experts][rows] or null, whatever slots experts are in

  size_t panels() const { return (rows + kPanel - 1) / kPanel; }
};

struct ExpertLayer {
  size_t experts = 0;
  Range own{0, SIZE_MAX};            // of experts, which are computed: choices of others are left out
  const int32_t* slots = nullptr;    // [experts] or null: which of `weights` are those of an expert; of one below 0
                                     // nothing is computed
  std::optional<ExpertMatrix> gate;  // of up's shape and format
  ExpertMatrix up, down;
  Activation activation = Activation::silu;
  float limit = 0;            // of MixerKernels::activate_within; infinity: none
  bool input_scaled = false;  // weights multiply an expert's input, not its outcome
  Activations activations = Activations::int16;

  // Whether an expert is computed, and by which of the matrices.
  bool has(size_t expert) const {
    return slots != nullptr ? slots[expert] >= 0 : own.begin <= expert && expert < own.end;
  }
  size_t place(size_t expert) const { return slots != nullptr ? static_cast<size_t>(slots[expert]) : expert; }
};

// Of every token `chosen` experts, ascending, none twice, and their weights. A negative one is left out: it is computed
// elsewhere.
struct ExpertChoice {
  const int32_t* ids;    // token t at + t * stride, [chosen]
  const float* weights;  // likewise
  size_t chosen;
  size_t stride = 0;  // 0: chosen

  int32_t id(size_t slot) const { return ids[at(slot)]; }
  float weight(size_t slot) const { return weights[at(slot)]; }

 private:
  // Of number slot / chosen of a token, its expert number slot % chosen.
  size_t at(size_t slot) const { return stride == 0 ? slot : slot / chosen * stride + slot % chosen; }
};

// Activations: token t at x + t * stride; 0: rows follow each other.
struct ExpertInput {
  const float* x;
  size_t stride = 0;
};

// Experts, [experts] not 0, whose matrices are there after an event: they are multiplied last, where all rows of a pass
// fit a wave, or all experts wait for it. An output does not depend on which they are.
struct LateExperts {
  const int32_t* late = nullptr;
  const Event* arrived = nullptr;

  bool is(size_t expert) const { return late != nullptr && late[expert] != 0; }
};

// Seconds of one thread in the products with gate and up, with what comes before them and what is made of them; those
// with down are known of early experts of a pass in turns, else they are what is left. Without a gate all is up's.
struct ExpertSeconds {
  double gate = 0, up = 0, down = 0;
};

// Of experts before late ones, and of these or of all.
struct TurnSeconds {
  ExpertSeconds early, rest;
};

constexpr size_t kWaveRows = 1024;  // rows whose activations are kept at once, if no expert has more

// Throws std::invalid_argument naming the first inconsistency.
void check(const ExpertLayer& layer);

// Floats, 64-byte aligned, for passes of up to `tokens` tokens.
size_t experts_workspace(const ExpertLayer& layer, size_t chosen, size_t tokens);

// Of each thread of the pool: Pool::reserve.
size_t experts_scratch(const ExpertLayer& layer);

// y[tokens][down.rows] = (or +=) the weighted networks of x[tokens][up.columns], by all threads of a pool, each of
// which calls this; x and the choice are there before, y after a barrier. `seconds`: of this thread, added to; or null.
void experts_by_all(const Kernels& k, Pool& pool, size_t thread, const ExpertLayer& layer, const ExpertChoice& choice,
                    const ExpertInput& x, float* y, size_t tokens, bool accumulate, float* workspace,
                    const LateExperts& late = {}, TurnSeconds* seconds = nullptr);

}  // namespace helm
