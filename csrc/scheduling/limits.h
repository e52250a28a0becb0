// Limits: how much one replica holds, and how much one pass takes (scheduler/limits.py).
#pragma once
#include <cstdint>

namespace helm::scheduling {

struct Limits {
  int64_t gpu_tokens = 0, cpu_tokens = 0;  // KV tokens of each cache, given out in blocks
  int64_t block = 16;                      // tokens of a block
  int64_t batch_tokens = 0;                // most tokens in a pass: room for activations
  int64_t chunk = 0;                       // most tokens of prompts and decodes in a pass; 0: prompts go through whole
  int64_t sequences = 0;                   // most that run at a time
  int64_t context = 0;                     // most tokens of prompt and output of a request
  bool keeps = false;                      // blocks of who is driven out stay until their room is wanted
  bool ahead = false;                      // a pass is decided when the one before it begins
  bool states = false;                     // whether requests keep states beside their caches
  int64_t snapshots = 0;                   // most states that are kept where prompts may part, for others to begin with

  int64_t blocks(int64_t tokens) const { return (tokens + block - 1) / block; }
  // Most tokens in a pass that has prompts.
  int64_t budget() const { return chunk > 0 && chunk < batch_tokens ? chunk : batch_tokens; }
};

}  // namespace helm::scheduling
