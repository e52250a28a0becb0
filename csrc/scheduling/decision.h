// Decision: what one pass does, by request.
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "scheduling/cost.h"

namespace helm::scheduling {

// Requests of one replica are numbered in the order in which they arrive.
using Id = int64_t;

// Where a request keeps its keys and values.
enum class Home : uint8_t { none, gpu, cpu };

// `tokens` of a prompt on top of `past` cached ones; with home cpu their cache leaves layer by layer (NEO-07).
struct Chunk {
  Id id;
  int64_t tokens, past;
  Home home;
};

// Every request that decodes with its cache on the accelerator advances in every pass, in sub-batch 0, unless the pass
// has none of them (`decodes` 0).
struct Decision {
  Kind kind = Kind::gpu_only;
  int64_t decodes = 0;                 // requests that decode on the accelerator
  std::vector<Chunk> prompts;          // in sub-batch 0
  std::array<std::vector<Id>, 2> cpu;  // decodes with attention on the host, by sub-batch; deferred: all cohorts in 0
  std::vector<Id> out, in;             // whole requests swapped to the host and back, before the pass
  std::vector<Id> dropped;             // their caches are given up; they wait to be computed again
  std::vector<int64_t> evicted;        // hashes of prefix blocks whose room the pass takes
  std::vector<Id> kept;                // whose states behind this pass become snapshots of their prompts
  std::vector<int64_t> forgotten;      // hashes of blocks whose snapshots these replace

  bool idle() const { return decodes == 0 && prompts.empty() && cpu[0].empty() && cpu[1].empty(); }
  // Nothing but decodes on the accelerator.
  bool pure() const {
    return decodes > 0 && kind == Kind::gpu_only && prompts.empty() && cpu[0].empty() && out.empty() && in.empty() &&
           dropped.empty();
  }
  void clear() {
    kind = Kind::gpu_only, decodes = 0;
    prompts.clear(), cpu[0].clear(), cpu[1].clear(), out.clear(), in.clear(), dropped.clear(), evicted.clear();
    kept.clear(), forgotten.clear();
  }
};

}  // namespace helm::scheduling
