// Cost: what the stages of a pass take (scheduler/cost.py), and the time of a pass of each kind
// (tests/support/iteration_times.py).
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "scheduling/line.h"

namespace helm::scheduling {

// Seconds of one layer by stage; `ends` are those of the whole pass. A pass of a pipeline of several accelerators is a
// round of as many micro-batches, each of `stages` slots.
struct Cost {
  int layers, stages;

  // Whether a stage other than the first begins with `layer`: `layers` are divided as evenly as can be, longer ones
  // first.
  bool hop_before(int layer) const {
    const int each = layers / stages, longer = layers % stages * (each + 1);
    return layer > 0 && layer < layers && (layer < longer ? layer % (each + 1) == 0 : (layer - longer) % each == 0);
  }

  Line linear;             // tokens (T_l)
  Line gpu_attention;      // KV tokens that decodes read (T_ga)
  double gpu_request;      // beside it, a request
  Line prefill_compute;    // query-key pairs of prompt chunks
  Line prefill_read;       // KV tokens that prompt chunks read; the longer of the two counts
  Line cpu_attention;      // KV tokens that decodes on the host read (T_ca)
  double cpu_request;      // beside it, a request
  Line to_host;            // requests: Q, K and V over the link (TrQKV)
  Line to_device;          // requests: attention's output back (TrO)
  Line swap_out, swap_in;  // KV tokens
  Line ends;               // sequences that yield a token (T_prl + T_pol)
  // By how much longer what either side reads takes while both read, where their memories are one; else 0.
  double shared_device, shared_host;
  // Between two stages of either side, the second of which waits for the other: once a layer for each half.
  double join_device, join_host;
  // The states of a request, of all layers: from one place on the accelerator to another, to the host and back.
  double state_copy, state_out, state_in;
};

// How the work of the accelerator and of the host go together in a pass.
enum class Kind : uint8_t {
  gpu_only,   // all attention on the accelerator
  simple,     // the host's attention in turn with everything else (NEO-03)
  pipelined,  // two sub-batches, one's linear stage beside the other's attention (NEO-05)
  deferred,   // cohorts on the host go a layer on at most, in each slot of a round; nobody waits for them (APEX-13..17)
};

// What a pass, or one of its sub-batches, has to do: counts over all its sequences.
struct Work {
  int64_t tokens = 0;                     // rows of the linear stage
  int64_t outputs = 0;                    // sequences that yield a token
  int64_t gpu_requests = 0;               // decodes with attention on the accelerator
  int64_t gpu_kv = 0;                     // KV tokens that decodes on the accelerator read, the appended ones included
  int64_t pairs = 0;                      // query-key pairs of prompt chunks: the sum of t past + t (t + 1) / 2
  int64_t prompt_kv = 0;                  // KV tokens that they read: the sum of past + t
  int64_t cpu_requests = 0;               // decodes with attention on the host
  int64_t cpu_kv = 0;                     // KV tokens that they read, the appended ones included
  int64_t swap_out = 0, swap_in = 0;      // KV tokens that move to the host and to the accelerator
  int64_t states_copied = 0;              // requests whose states become snapshots, or come from one
  int64_t states_out = 0, states_in = 0;  // requests whose states move to the host and to the accelerator

  void decode_on_gpu(int64_t cached) { ++tokens, ++outputs, ++gpu_requests, gpu_kv += cached + 1; }
  void decode_on_cpu(int64_t cached) { ++tokens, ++outputs, ++cpu_requests, cpu_kv += cached + 1; }
  void prompt(int64_t count, int64_t past, bool yields) {
    tokens += count, outputs += yields;
    pairs += count * past + count * (count + 1) / 2, prompt_kv += past + count;
  }
  Work& operator+=(const Work& other) { return add(other, 1); }
  Work& operator-=(const Work& other) { return add(other, -1); }

 private:
  Work& add(const Work& other, int64_t sign) {
    tokens += sign * other.tokens, outputs += sign * other.outputs;
    gpu_requests += sign * other.gpu_requests, gpu_kv += sign * other.gpu_kv;
    pairs += sign * other.pairs, prompt_kv += sign * other.prompt_kv;
    cpu_requests += sign * other.cpu_requests, cpu_kv += sign * other.cpu_kv;
    swap_out += sign * other.swap_out, swap_in += sign * other.swap_in;
    states_copied += sign * other.states_copied;
    states_out += sign * other.states_out, states_in += sign * other.states_in;
    return *this;
  }
};

// Requests on the host that come into a pass with so many layers behind them.
struct Joining {
  int layers;
  Work work;
};

// The work of a pass by sub-batch; `half[1]` is empty unless it is pipelined. The accelerator attends for `half[0]`
// only.
struct Load {
  std::array<Work, 2> half;
  // By layers. Deferred: cohorts, each in the linear stage of its layer; pipelined: parts of half[1] that begin there
  // (APEX-26).
  std::vector<Joining> joining;

  // Where those with more than `layers` behind them begin.
  std::vector<Joining>::iterator place(int layers);
  // Work of those who begin with as many layers behind them.
  Work& at(int layers);
};

// Seconds of a pass, and how long each side works in it; `link`: its busier direction.
struct Times {
  double seconds = 0, gpu = 0, cpu = 0, link = 0;

  Times& operator+=(const Times& other) {
    seconds += other.seconds, gpu += other.gpu, cpu += other.cpu, link += other.link;
    return *this;
  }
};

// How many times the KV tokens that a micro-batch reads are an Nth of the round's, where fewer requests than stages
// are.
double spread(const Cost& cost, const Work& work);

// How many times as long a round takes that begins in an empty pipeline: the last micro-batch follows the others into
// it.
double filling(const Cost& cost, const Load& load);

Times time_of(const Cost& cost, Kind kind, const Load& load);

// One layer's linear stage, and its attention on the accelerator: of so many decodes, and of decodes and prompts.
double linear_stage(const Cost& cost, const Work& work);
double decode_attention(const Cost& cost, double requests, double kv);
double device_attention(const Cost& cost, const Work& work);

// Seconds of its own work that the host does in `seconds` of a pass: fewer where the accelerator reads the same memory.
double host_seconds(const Cost& cost, Kind kind, const Load& load, double seconds);

// One layer of attention on the host, and with what goes over the link for it.
double host_attention(const Cost& cost, const Work& work);
double host_layer(const Cost& cost, const Work& work);

}  // namespace helm::scheduling
