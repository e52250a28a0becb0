// symmetric: decodes in two equal sub-batches with attention on the host; prompts in passes of their own (NEO-04).
#include "scheduling/hybrid.h"
#include "scheduling/policies.h"

namespace helm::scheduling {
namespace {

class Symmetric final : public Hybrid {
 public:
  Symmetric() : Hybrid({false, true}, {}) {}

  bool steady(const State&) const override { return false; }

 private:
  const Schedule& choose(const State&, const Cost&, const Schedules& schedules) override {
    if (schedules.prompts() > 0) {
      schedules.gpu_only(pass_);
    } else {
      schedules.symmetric(pass_);
    }
    return pass_;
  }

  Schedule pass_;
};

}  // namespace

std::unique_ptr<Policy> make_symmetric(const Options&) { return std::make_unique<Symmetric>(); }

}  // namespace helm::scheduling
