#include "scheduling/forward.h"

#include <algorithm>
#include <cmath>

namespace helm::scheduling {
namespace {

// Seconds of the first `terms` passes.
double sum(const Stretch& stretch, int64_t terms) {
  const auto n = static_cast<double>(terms);
  return n * stretch.first + stretch.rise * (n * (n - 1) / 2);
}

// About how many passes take `seconds`: the root of rise/2 n^2 + (first - rise/2) n = seconds.
int64_t about(const Stretch& stretch, double seconds) {
  const double linear = stretch.first - stretch.rise / 2;
  const double n = 2 * seconds / (linear + std::sqrt(std::max(0.0, linear * linear + 2 * stretch.rise * seconds)));
  return n >= static_cast<double>(stretch.terms) ? stretch.terms : std::max<int64_t>(1, static_cast<int64_t>(n));
}

// Cuts the stretch after the first pass that ends at `stop` or later; false if there is none. `before`: seconds from
// `now` to its beginning.
bool cut(Stretch& stretch, const Clock& now, double before, double stop) {
  const auto reached = [&](int64_t terms) { return due(stop, now.after(before + sum(stretch, terms))); };
  if (!reached(stretch.terms)) return false;
  int64_t terms = about(stretch, stop - now.now() - before);
  while (!reached(terms)) ++terms;
  while (terms > 1 && reached(terms - 1)) --terms;
  stretch.terms = terms;
  return true;
}

}  // namespace

double last(const Stretch& stretch) { return stretch.first + stretch.rise * static_cast<double>(stretch.terms - 1); }

double sum(const Stretch& stretch) { return sum(stretch, stretch.terms); }

double weighted_sum(const Stretch& stretch, double first, double rise) {
  const auto n = static_cast<double>(stretch.terms);
  const double ones = n * (n - 1) / 2, squares = (n - 1) * n * (2 * n - 1) / 6;
  return first * stretch.first * n + (first * stretch.rise + rise * stretch.first) * ones +
         rise * stretch.rise * squares;
}

void run_until(const Cost& cost, int64_t count, int64_t kv, int64_t most, const Clock& now, double stop,
               std::vector<Stretch>& run) {
  run.clear();
  const auto requests = static_cast<double>(count);
  Load load;
  load.half[0].tokens = load.half[0].outputs = load.half[0].gpu_requests = count;
  // Without what caches take to read, whose stretches come on top.
  const double rest = time_of(cost, Kind::gpu_only, load).gpu - cost.layers * cost.gpu_attention(0);
  const double wide = spread(cost, load.half[0]);
  double before = 0;
  for (bool stopped = false; most > 0 && !stopped;) {
    Stretch stretch = cost.gpu_attention.stretch(wide * static_cast<double>(kv), wide * requests, most);
    stretch.first = rest + cost.layers * stretch.first, stretch.rise *= cost.layers;
    stopped = cut(stretch, now, before, stop);
    run.push_back(stretch);
    before += sum(stretch);
    most -= stretch.terms, kv += stretch.terms * count;
  }
}

}  // namespace helm::scheduling
