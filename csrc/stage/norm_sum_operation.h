// NormSumOperation: what a body gave, normed, on its way to the residual stream or to what another body gave.
#pragma once
#include "stage/norm_operation.h"

namespace helm {

// value -> target (+)= norm(value), and all of it times a factor where there is one.
class NormSumOperation final : public Operation {
 public:
  std::optional<NormWeights> weights;
  bool adds = true;               // else it takes the place of what the target held
  const float* factor = nullptr;  // one number, or null

  void check(const StageSpec& spec) const override;
  bool present() const override { return weights.has_value(); }
  void run(StagePass& pass) const override;
  size_t scratch(const StageSpec&) const override { return kLinearScratch; }
  Range hidden_read(size_t hidden) const override {
    return adds && leaves[0].area() == Area::hidden ? Range{0, hidden} : Range{0, 0};
  }
};

}  // namespace helm
