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

void sort_rows(const ExpertLayer& layer, const ExpertChoice& choice, size_t tokens, const LateExperts& late,
               const ExpertsWorkspace& w) {
  const size_t slots = tokens * choice.chosen;
  const auto expert = [&](size_t slot) {
    const int32_t id = choice.id(slot);
    return id >= 0 && layer.has(static_cast<size_t>(id)) ? id : -1;
  };
  size_t total = 0;
  std::fill(w.first, w.first + layer.experts, 0u);
  for (size_t i = 0; i < slots; ++i)
    if (const int32_t id = expert(i); id >= 0) ++w.first[id], ++total;
  *w.counts = {0, 0, 0};
  uint32_t end = 0;
  const bool turns = total <= w.wave_rows;
  for (const bool last : {false, true}) {
    for (uint32_t e = 0; e < layer.experts; ++e) {
      if ((turns && late.is(e)) != last || w.first[e] == 0) continue;
      const uint32_t rows = w.first[e];
      w.segments[w.counts->segments++] = {e, end, end + rows};
      w.counts->most_rows = std::max(w.counts->most_rows, rows);
      end += rows;
    }
    if (!last) w.counts->early = w.counts->segments;
  }
  for (uint32_t i = 0; i < w.counts->segments; ++i) w.first[w.segments[i].expert] = w.segments[i].begin;
  for (size_t i = 0; i < slots; ++i) {
    const int32_t id = expert(i);
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
