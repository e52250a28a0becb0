// When two sub-batches pay: APEX's inequalities on seconds of one layer and rates of attention.
#pragma once

namespace helm::scheduling {

// One layer of the decode batch on the accelerator, and how fast each side attends.
// Rates count KV tokens, all of one size, so they are KV bytes per second (E-APEX-10).
struct Decoding {
  double linear;     // T_l, seconds
  double attention;  // T_g, seconds
  double gpu_rate;   // N_G, KV tokens per second
  double cpu_rate;   // N_C, KV tokens per second
};

// Window of the host beside two sub-batches of decodes: 2 T_l + T_g (eq 2), seconds.
inline double window(const Decoding& at) { return 2 * at.linear + at.attention; }

// Inequality (5): attention per second with two sub-batches exceeds that of the accelerator alone.
inline bool pipelining_pays(const Decoding& at) {
  const double alone = at.gpu_rate * at.attention;
  return (alone + at.cpu_rate * window(at)) / window(at) > alone / (at.linear + at.attention);
}

// Inequality (6): the same in closed form, N_G / N_C < 2 T_l / T_g + 3 + T_g / T_l (E-APEX-01, E-APEX-02).
inline bool below_ratio(const Decoding& at) {
  return at.gpu_rate / at.cpu_rate < 2 * at.linear / at.attention + 3 + at.attention / at.linear;
}

// With prompts of `linear` and `attention` seconds in the first sub-batch, decodes included. Consistent: both sides
// over the time they take. Printed: over those of decodes alone (E-APEX-03).
inline bool mixed_pays(const Decoding& at, double linear, double attention, bool printed) {
  const double overlap = linear + at.linear + attention, alone = at.gpu_rate * at.attention;
  const double both = alone + at.cpu_rate * overlap;
  if (printed) return both / window(at) > alone / (at.linear + at.attention);
  return both / overlap > alone / (linear + attention);
}

}  // namespace helm::scheduling
