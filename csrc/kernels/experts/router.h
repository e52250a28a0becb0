// A router's choice, shared by the threads of a pool.
#pragma once
#include "kernels/mixers.h"
#include "runtime/pool.h"

namespace helm {

// Throws std::invalid_argument naming the first inconsistency.
void check(const RouterSpec& router);

// This thread's rows of logits[rows][experts] to ids and weights[rows][chosen]. scratch: router_scratch floats.
void route_share(const MixerKernels& k, size_t thread, size_t threads, const RouterSpec& router, const float* logits,
                 size_t rows, int32_t* ids, float* weights, float* scratch);

}  // namespace helm
