// simple-offload: all attention of decodes on the host, in turn with everything else (NEO-03).
#include "scheduling/hybrid.h"
#include "scheduling/policies.h"

namespace helm::scheduling {
namespace {

class SimpleOffload final : public Hybrid {
 public:
  SimpleOffload() : Hybrid({false, true}, {}) {}

  bool steady(const State&) const override { return false; }

 private:
  const Schedule& choose(const State&, const Cost&, const Schedules& schedules) override {
    schedules.simple(pass_);
    return pass_;
  }

  Schedule pass_;
};

}  // namespace

std::unique_ptr<Policy> make_simple_offload(const Options&) { return std::make_unique<SimpleOffload>(); }

}  // namespace helm::scheduling
