// Line: a piecewise linear function, and its values along an arithmetic sequence.
#pragma once
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace helm::scheduling {

using std::size_t;

// As many terms of an arithmetic sequence as lie on one straight piece: values `first`, `first + rise`, ...
struct Stretch {
  double first, rise;
  int64_t terms;
};

// y[0] below the first knot, the last slope beyond the last one; x ascends strictly, y never falls (scheduler/cost.py).
class Line {
 public:
  Line(std::vector<double> x, std::vector<double> y) : x_(std::move(x)), y_(std::move(y)) {
    assert(!x_.empty() && x_.size() == y_.size());
    for (size_t i = 0; i + 1 < x_.size(); ++i) slope_.push_back((y_[i + 1] - y_[i]) / (x_[i + 1] - x_[i]));
  }

  double operator()(double at) const {
    if (at <= x_.front() || slope_.empty()) return y_.front();
    const size_t left = piece(at);
    return y_[left] + (at - x_[left]) * slope_[left];
  }

  // Becomes `factor` times as high as `other`, which has as many knots.
  void scale(const Line& other, double factor) {
    const auto times = [factor](double value) { return factor * value; };
    std::transform(other.y_.begin(), other.y_.end(), y_.begin(), times);
    std::transform(other.slope_.begin(), other.slope_.end(), slope_.begin(), times);
  }

  // The values at `at`, `at + step`, `at + 2 step`, ... (step > 0) until the next knot; at most `most` terms.
  Stretch stretch(double at, double step, int64_t most) const {
    if (slope_.empty()) return {y_.front(), 0.0, most};
    if (at < x_.front()) return {y_.front(), 0.0, terms(at, step, x_.front(), most)};
    const size_t left = piece(at);
    const double end = left + 1 < slope_.size() ? x_[left + 1] : std::numeric_limits<double>::infinity();
    return {y_[left] + (at - x_[left]) * slope_[left], step * slope_[left], terms(at, step, end, most)};
  }

 private:
  // The piece whose slope holds at `at` >= x[0]; the last one beyond the last knot.
  size_t piece(double at) const {
    const auto above = static_cast<size_t>(std::upper_bound(x_.begin(), x_.end(), at) - x_.begin());
    return std::min(above, x_.size() - 1) - 1;
  }

  // Terms up to `end`; at a knot both pieces agree.
  static int64_t terms(double at, double step, double end, int64_t most) {
    const double reach = std::floor((end - at) / step) + 1;
    return reach >= static_cast<double>(most) ? most : std::max<int64_t>(1, static_cast<int64_t>(reach));
  }

  std::vector<double> x_, y_, slope_;
};

}  // namespace helm::scheduling
