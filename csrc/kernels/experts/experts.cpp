#include "kernels/experts/experts.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/division.h"
#include "kernels/experts/sorting.h"
#include "runtime/clock.h"

namespace helm {
namespace {

constexpr size_t kRowsOfReading = 2;  // rows that take as long to multiply as a panel takes to be read
constexpr size_t kSummedColumns = 256;
constexpr size_t kOwnRows = 8;  // of an expert, up to which each thread packs inputs for itself: less than a barrier

// One thread's part of a pass.
struct Part {
  const Kernels& k;
  const MixerKernels& mixers;
  Pool& pool;
  size_t thread;
  const ExpertLayer& layer;
  const ExpertChoice& choice;
  const ExpertInput& x;
  float* y;
  size_t tokens;
  bool accumulate;
  const ExpertsWorkspace& w;
  TurnSeconds* seconds;

  float* scratch() const { return pool.scratch(thread); }
  bool own() const { return w.counts->most_rows <= kOwnRows; }

  InputKind kind(const ExpertMatrix& m, const Segment& s) const {
    return input_kind(k, m.format, layer.activations, s.rows());
  }
  float* packed(const Wave& wave, const Segment& s, size_t columns) const {
    return w.packed + (s.begin - wave.begin) * round_up(input_size(columns), 16);
  }
  template <class Use>
  void for_segments(const Wave& wave, const Use& use) const {
    for (size_t i = wave.first; i < wave.last; ++i) use(w.segments[i]);
  }

  // Columns of the inputs of segment s to rows[s.rows()][up.columns].
  void gather_columns(const Segment& s, Range columns, float* rows) const {
    const size_t stride = x.stride == 0 ? layer.up.columns : x.stride;
    for (size_t r = s.begin; r < s.end; ++r, rows += layer.up.columns) {
      const float* from = x.x + w.order[r] / choice.chosen * stride;
      std::copy(from + columns.begin, from + columns.end, rows + columns.begin);
      if (layer.input_scaled) k.scale(rows + columns.begin, choice.weight(w.order[r]), columns.end - columns.begin);
    }
  }

  // This thread's columns of the inputs of all experts.
  void gather(const Wave& wave) const {
    const size_t columns = layer.up.columns;
    for_segments(wave, [&](const Segment& s) {
      const InputKind wanted = kind(layer.up, s);
      float* rows = w.rows + (s.begin - wave.begin) * columns;
      gather_columns(s, packed_columns(wanted, columns, thread, pool.threads()), rows);
      pack_share(k, wanted, thread, pool.threads(), rows, s.rows(), columns, packed(wave, s, columns));
    });
  }

  // The whole input of a segment of few rows, in scratch.
  const void* own_input(const Segment& s) const {
    const size_t columns = layer.up.columns;
    float* rows = scratch() + kLinearScratch;
    gather_columns(s, {0, columns}, rows);
    return pack_share(k, kind(layer.up, s), 0, 1, rows, s.rows(), columns, rows + kOwnRows * round_up(columns, 16));
  }

  void pack_hidden(const Wave& wave) const {
    const size_t columns = layer.down.columns;
    for_segments(wave, [&](const Segment& s) {
      pack_share(k, kind(layer.down, s), thread, pool.threads(), w.up + (s.begin - wave.begin) * columns, s.rows(),
                 columns, packed(wave, s, columns));
    });
  }

  // What segment s is multiplied with, of rows[wave rows][columns]: of one row of floats these themselves.
  const void* input(const Wave& wave, const Segment& s, const ExpertMatrix& m, const float* rows) const {
    const float* own = rows + (s.begin - wave.begin) * m.columns;
    const InputKind wanted = kind(m, s);
    const bool plain = wanted == InputKind::floats || wanted == InputKind::tiled;
    return plain && s.rows() == 1 ? own : packed(wave, s, m.columns);
  }

  // Panels [first, last) of segment s: to[rows][m.rows] from the segment's first row on, biases added.
  void multiply_panels(const Segment& s, const ExpertMatrix& m, const void* input, float* to, size_t first,
                       size_t last) const {
    const void* weights = m.weights[layer.place(s.expert)];
    multiply(k, kind(m, s),
             {weights, m.format, m.rows, m.columns, input, to, m.rows, s.rows(), false, first, last, scratch()});
    if (m.bias == nullptr) return;
    const size_t begin = first * kPanel, end = std::min(m.rows, last * kPanel);
    for (size_t r = 0; r < s.rows(); ++r)
      k.add(to + r * m.rows + begin, m.bias + s.expert * m.rows + begin, end - begin);
  }

  // This thread's panels of all segments of a wave: use(segment, first, last).
  template <class Use>
  void for_panels(const Wave& wave, size_t panels, const Use& use) const {
    const size_t count = wave.last - wave.first;
    const auto cost = [&](size_t i) { return w.segments[wave.first + i].rows() + kRowsOfReading; };
    const Cut begin = cut_of(count, panels, thread, pool.threads(), cost);
    const Cut end = cut_of(count, panels, thread + 1, pool.threads(), cost);
    for_items(begin, end, count, panels,
              [&](size_t i, size_t first, size_t last) { use(w.segments[wave.first + i], first, last); });
  }

  void multiply_in(const Wave& wave, ExpertSeconds* own_seconds) const {
    const ExpertMatrix& up = layer.up;
    const bool same = tokens == 1 && !layer.input_scaled;  // all experts see the same input
    const void* from = nullptr;
    for_panels(wave, up.panels(), [&](const Segment& s, size_t first, size_t last) {
      if (!own()) from = input(wave, s, up, w.rows);
      if (own() && (from == nullptr || !same)) from = own_input(s);
      const size_t at = (s.begin - wave.begin) * up.rows;
      if (layer.gate) multiply_panels(s, *layer.gate, from, w.gate + at, first, last);
      const double gated = own_seconds != nullptr && layer.gate ? now() : 0;
      multiply_panels(s, up, from, w.up + at, first, last);
      const size_t begin = first * kPanel, count = std::min(up.rows, last * kPanel) - begin;
      for (size_t r = 0; r < s.rows(); ++r) {
        const size_t row = at + r * up.rows + begin;
        mixers.activate_within(layer.activation, layer.limit, layer.gate ? w.gate + row : nullptr, w.up + row, count);
      }
      if (own_seconds != nullptr && layer.gate) own_seconds->up += now() - gated;
    });
  }

  void multiply_out(const Wave& wave) const {
    const ExpertMatrix& down = layer.down;
    for_panels(wave, down.panels(), [&](const Segment& s, size_t first, size_t last) {
      const float* hidden = w.up + (s.begin - wave.begin) * down.columns;
      const void* from = input(wave, s, down, w.up);
      if (own()) from = pack_share(k, kind(down, s), 0, 1, hidden, s.rows(), down.columns, scratch() + kLinearScratch);
      multiply_panels(s, down, from, w.rows + (s.begin - wave.begin) * down.rows, first, last);
    });
  }

  // Outcomes of a wave to this thread's part of y, which begins with zeros.
  void sum_up(const Wave& wave, bool begins) const {
    const size_t rows = layer.down.rows, pieces = (rows + kSummedColumns - 1) / kSummedColumns;
    const Range share = share_of(tokens * pieces, thread, pool.threads());
    for (size_t i = share.begin; i < share.end; ++i) {
      const size_t token = i / pieces, first = i % pieces * kSummedColumns;
      const size_t count = std::min(rows - first, kSummedColumns);
      float* target = y + token * rows + first;
      if (begins) std::fill(target, target + count, 0.0f);
      for (size_t slot = token * choice.chosen; slot < (token + 1) * choice.chosen; ++slot) {
        const int32_t row = w.positions[slot];
        if (row < static_cast<int32_t>(wave.begin) || row >= static_cast<int32_t>(wave.end)) continue;
        mixers.add_weighted(target, w.rows + (row - wave.begin) * rows + first,
                            layer.input_scaled ? 1.0f : choice.weight(slot), count);
      }
    }
  }

  void pass_wave(const Wave& wave) const {
    if (wave.first > 0) pool.barrier();  // outcomes of the last wave were in `rows`
    multiply_all(wave, seconds != nullptr ? &seconds->rest : nullptr);
    sum_up(wave, wave.first == 0 && !accumulate);
  }

  // The early segments of a pass of one wave, and those after them once they are there: outcomes are added up together,
  // in order of experts.
  void pass_in_turns(const LateExperts& late) const {
    const size_t early = w.counts->early, all = w.counts->segments;
    const Wave whole{0, all, 0, w.segments[all - 1].end};
    if (early > 0) multiply_all({0, early, 0, whole.end}, seconds != nullptr ? &seconds->early : nullptr);
    if (thread == 0) late.arrived->wait();
    pool.barrier();
    multiply_all({early, all, 0, whole.end}, seconds != nullptr ? &seconds->rest : nullptr);
    sum_up(whole, !accumulate);
  }

  // Outcomes of a wave, visible to all.
  void multiply_all(const Wave& wave, ExpertSeconds* own_seconds) const {
    const double begun = own_seconds != nullptr ? now() : 0, before = own_seconds != nullptr ? own_seconds->up : 0;
    if (!own()) {
      gather(wave);
      pool.barrier();
    }
    multiply_in(wave, own_seconds);
    pool.barrier();
    const double between = own_seconds != nullptr ? now() : 0;
    if (own_seconds != nullptr)
      (layer.gate ? own_seconds->gate : own_seconds->up) += between - begun - (own_seconds->up - before);
    if (!own()) {
      pack_hidden(wave);
      pool.barrier();
    }
    multiply_out(wave);
    pool.barrier();
    if (own_seconds != nullptr) own_seconds->down += now() - between;
  }
};

// Whether a pass that cannot be done in turns reads late experts.
bool awaits(const LateExperts& late, const ExpertsWorkspace& w) {
  return std::any_of(w.segments, w.segments + w.counts->segments, [&](const Segment& s) { return late.is(s.expert); });
}

void check_matrix(const ExpertMatrix& m, const char* name) {
  if (m.weights == nullptr || m.rows == 0 || m.columns == 0 || !divides(m.format, m.columns))
    throw std::invalid_argument(std::string("experts: ") + name +
                                " has no weights or no shape that its format can have");
}

}  // namespace

void check(const ExpertLayer& layer) {
  check_matrix(layer.up, "up");
  check_matrix(layer.down, "down");
  if (layer.down.columns != layer.up.rows) throw std::invalid_argument("experts: down's columns are not up's rows");
  if (!(layer.limit > 0)) throw std::invalid_argument("experts: the limit must be above 0");
  if (!layer.gate) return;
  check_matrix(*layer.gate, "gate");
  if (layer.gate->rows != layer.up.rows || layer.gate->columns != layer.up.columns ||
      layer.gate->format != layer.up.format)
    throw std::invalid_argument("experts: gate and up differ in shape or format");
}

size_t experts_workspace(const ExpertLayer& layer, size_t chosen, size_t tokens) {
  return ExpertsWorkspace(layer, chosen, tokens, nullptr).size;
}

size_t experts_scratch(const ExpertLayer& layer) {
  const size_t columns = std::max(layer.up.columns, layer.down.columns);
  return kLinearScratch + kOwnRows * (round_up(columns, 16) + round_up(input_size(columns), 16));
}

void experts_by_all(const Kernels& k, Pool& pool, size_t thread, const ExpertLayer& layer, const ExpertChoice& choice,
                    const ExpertInput& x, float* y, size_t tokens, bool accumulate, float* workspace,
                    const LateExperts& late, TurnSeconds* seconds) {
  const ExpertsWorkspace w(layer, choice.chosen, tokens, workspace);
  if (thread == 0) {
    sort_rows(layer, choice, tokens, late, w);
    if (w.counts->early == w.counts->segments && awaits(late, w)) late.arrived->wait();
  }
  pool.barrier();
  const Part part{k, k.mixers(), pool, thread, layer, choice, x, y, tokens, accumulate, w, seconds};
  const size_t segments = w.counts->segments;
  if (w.counts->early < segments) return part.pass_in_turns(late);
  for (size_t first = 0; first < segments;) {
    const Wave wave = wave_from(w, first);
    part.pass_wave(wave);
    first = wave.last;
  }
  if (segments == 0 && !accumulate) part.sum_up({0, 0, 0, 0}, true);
}

}  // namespace helm
