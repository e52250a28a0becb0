// fastdecode-plus: NEO's two sub-batches with all attention of decodes on the host (NEO 5.1).
#include "scheduling/hybrid.h"
#include "scheduling/policies.h"

namespace helm::scheduling {
namespace {

class FastDecodePlus final : public Hybrid {
 public:
  FastDecodePlus() : Hybrid({false, true}, {}) {}

  bool steady(const State&) const override { return false; }

 private:
  // Prompts hide what they can; without any, decodes are launched hidden or not (NEO-49).
  const Schedule& choose(const State&, const Cost&, const Schedules& schedules) override {
    if (schedules.prompts() > 0) {
      schedules.pipelined(both_);
    } else {
      schedules.balanced(both_);
    }
    return both_;
  }

  Schedule both_;
};

}  // namespace

std::unique_ptr<Policy> make_fastdecode_plus(const Options&) { return std::make_unique<FastDecodePlus>(); }

}  // namespace helm::scheduling
