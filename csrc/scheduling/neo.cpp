// neo: two sub-batches where they advance more requests a second than the accelerator alone (NEO 3.2).
#include "scheduling/hybrid.h"
#include "scheduling/policies.h"

namespace helm::scheduling {
namespace {

class Neo final : public Hybrid {
 public:
  explicit Neo(const Options& options)
      : Hybrid({true, true}, {options.whole("saturation"), options.text("prompts") == "work"}) {}

 private:
  // The larger x / T, where the paper prints the larger T / x (E-NEO-01).
  const Schedule& choose(const State&, const Cost&, const Schedules& schedules) override {
    schedules.gpu_only(alone_);
    schedules.pipelined(both_);
    consider(alone_), consider(both_);
    return both_.uses_host() && both_.rate() > alone_.rate() ? both_ : alone_;
  }

  Schedule alone_, both_;
};

}  // namespace

std::unique_ptr<Policy> make_neo(const Options& options) { return std::make_unique<Neo>(options); }

}  // namespace helm::scheduling
