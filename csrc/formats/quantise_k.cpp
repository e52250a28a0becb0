// q4_k and q6_k: the scale of each run of columns is searched among a few, then stored as a small multiple of one f16.
#include <cmath>

#include "formats/quantise.h"

namespace helm {
namespace {

constexpr int kSuper = 256;      // columns of a block
constexpr float kTiny = 1e-20f;  // runs of smaller values are zero

float clamp(float value, float low, float high) {
  const float above = value > low ? value : low;
  return above < high ? above : high;
}

// x = scale * code + offset, offset <= 0, and what is left: sum of weight * difference^2.
struct Line {
  float scale, offset, error;
};

struct Weighted {
  const float* x;
  const float* weights;
  float w, wx, wxx;  // sums of weights, weights x, weights x^2
};

// The best line through codes = nearest((x - low) inverse) of 0 to 15.
Line fit_line(const Weighted& run, float low, float inverse) {
  float wl = 0, wll = 0, wxl = 0;
  for (size_t c = 0; c < kRun; ++c) {
    const float code = clamp(nearest((run.x[c] - low) * inverse), 0, 15), weighted = run.weights[c] * code;
    wl += weighted, wll += weighted * code, wxl += weighted * run.x[c];
  }
  const float determinant = run.w * wll - wl * wl;
  if (determinant > 0) {
    const float scale = (run.w * wxl - run.wx * wl) / determinant, offset = (wll * run.wx - wl * wxl) / determinant;
    if (offset <= 0) return {scale, offset, run.wxx - scale * wxl - offset * run.wx};
  }
  const float scale = wll > 0 ? wxl / wll : 0;
  return {scale, 0, run.wxx - scale * wxl};
}

Line best_line(const float* x) {
  float squares = 0, low = 0, high = x[0];
  for (size_t c = 0; c < kRun; ++c) {
    squares += x[c] * x[c];
    low = x[c] < low ? x[c] : low;
    high = x[c] > high ? x[c] : high;
  }
  if (high - low < kTiny) return {0, low, 0};
  float weights[kRun];
  Weighted run{x, weights, 0, 0, 0};
  for (size_t c = 0; c < kRun; ++c) {
    weights[c] = std::sqrt(squares / kRun) + std::fabs(x[c]);
    run.w += weights[c], run.wx += weights[c] * x[c], run.wxx += weights[c] * x[c] * x[c];
  }
  Line best = fit_line(run, low, 15 / (high - low));
  for (float steps = 14.0f; steps < 16.1f; steps += 0.2f) {
    const Line line = fit_line(run, low, steps / (high - low));
    if (line.error < best.error) best = line;
  }
  return best;
}

// The scale of codes -32 to 31 whose multiples are nearest to x, larger values counting more.
float best_scale(const float* x) {
  float extreme = 0;
  for (int c = 0; c < 16; ++c) extreme = std::fabs(extreme) < std::fabs(x[c]) ? x[c] : extreme;
  if (std::fabs(extreme) < kTiny) return 0;
  float best = 0, scale = 0;
  for (float steps = 31.1f; steps < 32.95f; steps += 0.1f) {
    float products = 0, squares = 0;
    for (int c = 0; c < 16; ++c) {
      const float code = clamp(nearest(x[c] * (-steps / extreme)), -32, 31), weight = x[c] * x[c];
      products += weight * x[c] * code, squares += weight * code * code;
    }
    if (squares > 0 && products * products > best * squares) {
      scale = products / squares;
      best = scale * products;
    }
  }
  return scale;
}

uint8_t multiple_of(float unit, float value, float most) {
  return unit == 0 ? 0 : static_cast<uint8_t>(static_cast<int>(clamp(nearest(value / unit), 0, most)));
}

}  // namespace

CodeBlock quantise_q4_k(const float* x) {
  Line lines[kSuper / kRun];
  float scale = 0, minimum = 0;
  for (size_t i = 0; i < kSuper / kRun; ++i) {
    lines[i] = best_line(x + i * kRun);
    scale = lines[i].scale > scale ? lines[i].scale : scale;
    minimum = -lines[i].offset > minimum ? -lines[i].offset : minimum;
  }
  CodeBlock b;
  b.scale = narrow_f16(scale / 63), b.minimum = narrow_f16(minimum / 63);
  for (size_t i = 0; i < kSuper / kRun; ++i) {
    b.scales[i] = multiple_of(scale / 63, lines[i].scale, 63);
    b.minima[i] = multiple_of(minimum / 63, -lines[i].offset, 63);
    const float step = widen_f16(b.scale) * b.scales[i], low = widen_f16(b.minimum) * b.minima[i];
    for (size_t c = i * kRun; c < (i + 1) * kRun; ++c) b.codes[c] = multiple_of(step, x[c] + low, 15);
  }
  return b;
}

CodeBlock quantise_q6_k(const float* x) {
  float scales[16], extreme = 0;
  for (int i = 0; i < 16; ++i) {
    scales[i] = best_scale(x + i * 16);
    extreme = std::fabs(extreme) < std::fabs(scales[i]) ? scales[i] : extreme;
  }
  CodeBlock b;
  const float unit = extreme / -128;
  b.scale = narrow_f16(unit);
  for (int i = 0; i < 16; ++i) {
    const float factor = unit == 0 ? 0 : clamp(nearest(scales[i] / unit), -128, 127);
    b.scales[i] = static_cast<uint8_t>(static_cast<int8_t>(factor));
    const float step = widen_f16(b.scale) * factor;
    for (int c = i * 16; c < (i + 1) * 16; ++c)
      b.codes[c] = static_cast<uint8_t>(static_cast<int>(step == 0 ? 0 : clamp(nearest(x[c] / step), -32, 31)) + 32);
  }
  return b;
}

}  // namespace helm
