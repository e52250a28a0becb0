#include "kernels/experts/sorting.h"

#include <algorithm>

namespace helm {

ExpertsWorkspace::ExpertsWorkspace(const ExpertLayer& layer, size_t chosen, size_t tokens, float* workspace)
    : wave_rows(std::min(tokens * chosen, std::max(kWaveRows, tokens))) {
  float* next = workspace;
  const auto take = [&](size_t floats) {
    float* part = next;
    next += round_up(floats, 16);
    return part;
  };
  const size_t slots = tokens * chosen, in = layer.up.columns, out = layer.down.rows, width = layer.up.rows;
  counts = reinterpret_cast<Counts*>(take(sizeof(Counts) / sizeof(float)));
  segments = reinterpret_cast<Segment*>(take(layer.experts * sizeof(Segment) / sizeof(float)));
  first = reinterpret_cast<uint32_t*>(take(layer.experts + 1));
  order = reinterpret_cast<int32_t*>(take(slots));
  positions = reinterpret_cast<int32_t*>(take(slots));
  rows = take(wave_rows * std::max(in, out));
  packed = take(wave_rows * round_up(std::max(input_size(in), input_size(width)), 16));
  gate = take(wave_rows * width);
  up = take(wave_rows * width);
  size = static_cast<size_t>(next - workspace);
}

void sort_rows(const ExpertLayer& layer, const ExpertChoice& choice, size_t tokens, const ExpertsWorkspace& w) {
  const size_t slots = tokens * choice.chosen;
  std::fill(w.first, w.first + layer.experts + 1, 0u);
  for (size_t i = 0; i < slots; ++i)
    if (choice.ids[i] >= 0) ++w.first[choice.ids[i] + 1];
  *w.counts = {0, 0};
  for (uint32_t e = 0; e < layer.experts; ++e) {
    const uint32_t begin = w.first[e], end = begin + w.first[e + 1];
    w.first[e + 1] = end;
    if (end == begin) continue;
    w.segments[w.counts->segments++] = {e, begin, end};
    w.counts->most_rows = std::max(w.counts->most_rows, end - begin);
  }
  for (size_t i = 0; i < slots; ++i) {
    const int32_t id = choice.ids[i];
    w.positions[i] = id < 0 ? -1 : static_cast<int32_t>(w.first[id]++);
    if (id >= 0) w.order[w.positions[i]] = static_cast<int32_t>(i);
  }
}

Wave wave_from(const ExpertsWorkspace& w, size_t first) {
  Wave wave{first, first, w.segments[first].begin, w.segments[first].begin};
  while (wave.last < w.counts->segments && w.segments[wave.last].end - wave.begin <= w.wave_rows)
    wave.end = w.segments[wave.last++].end;
  return wave;
}

}  // namespace helm
