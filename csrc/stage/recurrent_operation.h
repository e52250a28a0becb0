// Mixers that keep a state of fixed size per sequence: a convolution over time, a linear recurrence, a gated norm.
#pragma once
#include "kernels/recurrent/recurrence.h"
#include "stage/operation.h"

namespace helm {

// What an operation keeps of every sequence, f32. A state begins anew with position 0. Of a pass whose last tokens may
// be taken back, states behind each of the first `snapshots` tokens are kept too: behind those of the sequences, token
// by token.
struct States {
  float* data = nullptr;
  size_t count = 0;      // rows
  size_t width = 0;      // numbers of one
  size_t snapshots = 0;  // only of passes in which sequences have as many tokens each

  float* of(size_t row) const { return data + row * width; }
  float* behind(size_t token, size_t sequence, size_t sequences) const {
    return of((1 + token) * sequences + sequence);
  }
};

// Rows [first, first + tokens) of a pass are a sequence's tokens at positions past, past + 1, ...
struct StateRun {
  size_t first, tokens, past;
  float* state;
};

// Input -> itself, or, with gates, input -> a value of its own: activation of a convolution over the last `taps` tokens
// of every channel. Its channels are columns [at, at + channels) of the input; with gates C * conv(B * x), which the
// input has one after the other in the order B, C, x.
class ConvolutionOperation final : public Operation {
 public:
  size_t channels = 0, at = 0, taps = 0;
  const float* weights = nullptr;  // [taps][channels], the token itself last
  const float* bias = nullptr;     // [channels]; or null
  const float* factors = nullptr;  // multiply the input, as wide as that is, before all else; or null
  bool silu = false, gates = false;
  States states;  // [taps - 1][channels] each

  void check(const StageSpec& spec) const override;
  bool present() const override { return weights != nullptr && states.data != nullptr; }
  size_t kept() const override { return states.count; }
  void run(StagePass& pass) const override;

 private:
  void convolve(StagePass& pass, const StateRun& run, Range own) const;
  void keep(const float* state, float* snapshot, Range own) const;
};

// A linear recurrence of every head (RecurrenceArgs). The first input has queries, keys and values. Of a delta rule,
// the others are what decays and rates are computed of, in place; of a state space the first has time steps too, which
// the rates become, and decays are left beside the outcome.
class RecurrenceOperation final : public Operation {
 public:
  RecurrenceShape shape{};
  size_t queries = 0, keys = 0, values = 0, steps = 0;  // columns of the first input where these begin
  const float* offsets = nullptr;                       // added to what decays are computed of
  const float* rates = nullptr;                         // [value_heads]: logarithms of how fast states decay
  const float* passing = nullptr;                       // [value_heads]: what of values joins the outcome; or null
  float longest = 0;                                    // time step; infinity without a limit
  States states;                                        // [value_heads][key_dim][value_dim] each

  bool corrects() const { return shape.corrects; }
  size_t decays() const { return shape.value_heads * (shape.per_dimension ? shape.key_dim : 1); }
  void check(const StageSpec& spec) const override;
  bool present() const override { return offsets != nullptr && rates != nullptr && states.data != nullptr; }
  size_t kept() const override { return states.count; }
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec&) const override { return recurrence_scratch(shape.key_dim, shape.value_dim); }

 private:
  void prepare(StagePass& pass, size_t row) const;
  // Tokens [from, from + count) of every sequence, or as many as it has.
  void recur(StagePass& pass, size_t from, size_t count) const;
  RecurrenceRun run_of(const StateRun& run) const;
};

// Value, gate -> value in place: rows of `groups` groups are normed and multiplied by what becomes of columns [at, ...)
// of the gate. Without an epsilon they are multiplied alone.
class GatedNormOperation final : public Operation {
 public:
  size_t groups = 1, at = 0;
  std::optional<float> eps;
  const float* weights = nullptr;  // of a group; own_weights: of all
  bool own_weights = false, gate_first = false;
  GateKind gate = GateKind::silu;

  void check(const StageSpec& spec) const override;
  bool present() const override { return !eps || weights != nullptr; }
  void run(StagePass& pass) const override;
};

}  // namespace helm
