// The kernels of mixers.h for the instruction set whose Simd was included before.
#pragma once
#include "kernels/elementwise/gates_impl.h"
#include "kernels/elementwise/rotation_impl.h"
#include "kernels/experts/router_impl.h"
#include "kernels/recurrent/convolution_impl.h"
#include "kernels/recurrent/decays_impl.h"
#include "kernels/recurrent/recurrence_impl.h"

namespace helm {
namespace {

constexpr MixerKernels mixers_by_name() {
  MixerKernels table{};
  table.route = route;
  table.activate_within = activate_within;
  table.gate = gate;
  table.gate_row = gate_row;
  table.multiply = multiply;
  table.rope_pairs = rope_pairs;
  table.gated_norm = gated_norm;
  table.add_weighted = add_weighted;
  table.convolve = convolve;
  table.decays = decays;
  table.recur = recur;
  return table;
}

constexpr MixerKernels kMixers = mixers_by_name();

}  // namespace
}  // namespace helm
