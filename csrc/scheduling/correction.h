// Correction: what stages take by what passes have taken (APEX-41).
#pragma once
#include <array>
#include <optional>

#include "scheduling/cost.h"

namespace helm::scheduling {

// Factors on the believed cost: of linear stages (and ends), of attention on the accelerator, of attention on the host
// and of the link. The last two are ratios of sums over passes, in which older ones count exponentially less; so are
// the first two, of which only the sum is observed: least squares over passes that mix them differently, held near 1 as
// far as passes do not tell them apart.
class Correction {
 public:
  void observe(Kind kind, const Load& load, const Cost& believed, const Times& measured);

  // `believed`, corrected; valid until the next call.
  const Cost& corrected(const Cost& believed);

  // Linear stages, attention on the accelerator, on the host, the link.
  const std::array<double, 4>& factors() const { return factors_; }

 private:
  struct Ratio {
    double measured = 0, predicted = 0;
    double update(double measured_now, double predicted_now);
  };
  void fit_device(double linear, double attention);
  void scale(const Cost& believed);

  std::array<double, 4> factors_{1, 1, 1, 1};
  std::array<double, 3> squares_{};   // sums of l l, l a, a a: predicted parts of measured seconds
  std::array<double, 2> products_{};  // sums of l, a
  Ratio host_, link_;
  std::optional<Cost> cost_;
  bool fresh_ = false;
};

}  // namespace helm::scheduling
