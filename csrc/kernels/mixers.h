// The contract of the kernels of routers and recurrent mixers, which exist once per instruction set.
//
// All numbers are f32 and sums are kept in f32. Errors: exp, sigmoid, silu 1e-6 relative, softplus 1e-6 relative; norms
// 1e-6 relative to the largest value; recurrences as said there. NaN goes through to what it takes part in. No pointer
// needs more than its element's alignment; 64 bytes is fastest.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/kernels.h"

namespace helm {

// What becomes of logits: softmax over all experts, 1 / (1 + exp(-x)), sqrt(log(1 + exp(x))), or nothing.
enum class RouterScore { softmax, sigmoid, sqrt_softplus, none };
// Weights of the chosen: their scores, or the softmax of their logits.
enum class RouterWeights { scores, softmax_of_chosen };

// How a router chooses `chosen` of `experts`. Where there is a correction, or groups compared by two scores, scores (+
// correction) are compared, else logits, which have the same order and no ties that rounding makes. With groups
// (experts / groups each), only experts of the `kept` best groups are chosen, by their best score or the sum of their
// best two. Between equals the lower index wins; NaN ranks below every number.
struct RouterSpec {
  size_t experts, chosen;
  RouterScore score;
  RouterWeights weights;
  const float* correction;    // [experts] or null: added to scores for choosing alone
  size_t groups, kept;        // 0 groups: none; kept * (experts / groups) >= chosen
  bool best_two;              // groups of at least two experts
  bool normalised;            // weights are divided by their sum + eps
  float eps, scaling;         // scaling multiplies them afterwards
  const float* expert_scale;  // [experts] or null: multiplies them too
};
constexpr size_t router_scratch(const RouterSpec& r) { return 2 * r.experts + r.chosen + r.groups; }

// Row r of logits[rows][experts] to ids[rows][chosen], ascending, and their weights. Weights are within 2e-6 relative
// of exact arithmetic; those of a row with NaN or +infinity among its logits are NaN, its ids distinct experts.
struct RouteArgs {
  const RouterSpec* router;
  const float* logits;
  size_t rows;
  int32_t* ids;
  float* weights;
  float* scratch;  // router_scratch floats
};

enum class GateKind { none, sigmoid, silu };

// Rows of `groups` groups of `width` values: out = norm(x) * weight * gate(z) or, `gate_first`, norm(x * gate(z)) *
// weight; the norm is x / sqrt(mean of squares of its group + eps). out may be x, not z.
struct GatedNormArgs {
  const float* x;
  const float* z;       // as x, or null where the gate is none
  const float* weight;  // [width] for every group, `own_weights`: [groups][width]; null: ones
  float* out;
  size_t groups, width;
  float eps;
  GateKind gate;
  bool gate_first, own_weights;
};

constexpr size_t kMostTaps = 4;  // of a convolution over time

// x[t][c] of channels [first, last) = activation(bias[c] + sum over j < taps of weight[j][c] * input[t - taps + 1 + j]
// [c]), for t < tokens of one sequence. What came before is in state[taps - 1][channels], which has the last inputs
// afterwards. Each is a chain of FMAs in ascending order of j from the bias on.
struct ConvolveArgs {
  float* x;  // token t at x + t * stride: inputs, then outputs
  size_t stride, tokens, channels, first, last;
  const float* weight;  // [taps][channels], the token itself last
  const float* bias;    // [channels] or null
  float* state;
  size_t taps;  // 2 to kMostTaps
  bool silu;
};

// dt[i] = min(softplus(raw[i] + bias[i]), longest) and decay[i] = -exp(a_log[i / per]) * dt[i], for i < n; `longest`
// may be infinity, dt null. raw may be dt or decay.
struct DecayArgs {
  const float *raw, *bias, *a_log;
  size_t n, per;
  float longest;
  float *dt, *decay;
};

// A linear recurrence of `heads` value heads that share one head of keys and queries, for tokens of one sequence:
// S = exp(decay) S; S += k (rate (v - S^T k))^T, or, not `corrects`, S += k (rate v)^T; out = S^T q + skip v.
// A gated delta rule is that with l2-normalised k and q, Mamba-2 with k = B, q = C, v = x, rate = dt.
// Tokens pass one by one, or, where decays are per head and there are more than kRecurrenceOneByOne, as chunks; both
// have an error of at most 1e-5 of the largest output and number of the state (normalised k, rates from 0 to 1, decays
// not above 0), and do not depend on how columns are cut, at multiples of kRecurrenceColumns. A NaN may reach all
// tokens of its chunk.
struct RecurrenceArgs {
  const float *q, *k;  // token t at + t * key_stride, [key_dim]
  size_t key_stride;
  const float* v;  // token t, head h at + t * value_stride + h * value_dim
  size_t value_stride;
  const float* decay;  // token t, head h at + t * decay_stride + h (per dimension: + h * key_dim, [key_dim])
  size_t decay_stride;
  const float* rate;  // token t, head h at + t * rate_stride + h
  size_t rate_stride;
  const float* skip;  // [heads] or null
  float* out;         // as v, out_stride from token to token
  size_t out_stride;
  float* state;  // [heads][key_dim][value_dim]
  size_t tokens, heads, key_dim, value_dim;
  size_t head_step;    // from one of these heads to the next, in heads of v, decay, rate, skip, out and state
  size_t first, last;  // columns of every head's values
  bool per_dimension;  // decays: else one per head
  bool corrects;       // the delta rule
  bool normalised;     // k and q are divided by sqrt(sum of squares + 1e-6) first
  float query_scale;   // multiplies q afterwards
  float* scratch;      // recurrence_scratch floats, 64-byte aligned
};
constexpr size_t kRecurrenceChunk = 64;    // tokens: a matrix of as many rows and columns is solved for each chunk
constexpr size_t kRecurrenceColumns = 64;  // four registers of the widest instruction set
constexpr size_t kRecurrenceOneByOne = 8;  // tokens up to which a chunk does not pay

constexpr size_t recurrence_scratch(size_t key_dim, size_t value_dim) {
  return 4 * kRecurrenceChunk * round_up(key_dim, kPanel) + kRecurrenceChunk * round_up(value_dim, kPanel) +
         4 * kRecurrenceChunk * kRecurrenceChunk + kRecurrenceChunk;
}

struct MixerKernels {
  void (*route)(const RouteArgs&);
  // up[n] = activation(gate[n]) * up[n], or activation(up[n]) without a gate; before, gate is cut to at most `limit`
  // and up to [-limit, limit]. NaN stays.
  void (*activate_within)(Activation kind, float limit, const float* gate, float* up, size_t n);
  // x[n] *= gate(z[n]).
  void (*gate)(GateKind kind, float* x, const float* z, size_t n);
  // x[n] *= gate(z).
  void (*gate_row)(GateKind kind, float* x, float z, size_t n);
  void (*multiply)(float* x, const float* factors, size_t n);
  // Pairs 2i and 2i + 1 of x[2 * half] turned by cos[half], sin[half]; out may be x.
  void (*rope_pairs)(const float* x, const float* cos, const float* sin, size_t half, float* out);
  void (*gated_norm)(const GatedNormArgs&);
  // y[n] += weight * x[n].
  void (*add_weighted)(float* y, const float* x, float weight, size_t n);
  void (*convolve)(const ConvolveArgs&);
  void (*decays)(const DecayArgs&);
  void (*recur)(const RecurrenceArgs&);
};

}  // namespace helm
