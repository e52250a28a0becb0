// adaptive: of the passes that the other policies would make, the one that advances most requests a second, by costs
// that what passes have taken corrects.
#include <algorithm>

#include "scheduling/correction.h"
#include "scheduling/hybrid.h"
#include "scheduling/policies.h"

namespace helm::scheduling {
namespace {

constexpr double kLess = 0.9, kMore = 1.02, kLeast = 0.05;

class Adaptive final : public Hybrid {
 public:
  explicit Adaptive(const Options& options) : Hybrid({true, true}, {options.whole("saturation")}, pool_of(options)) {}

  void decide(State& state, const Cost& believed) override {
    believed_ = &believed;
    Hybrid::decide(state, correction_.corrected(believed));
  }

  bool learns() const override { return true; }
  void observe(Kind kind, const Load& load, const Times&, const Times& measured) override {
    correction_.observe(kind, load, *believed_, measured);
    if (kind == Kind::pipelined && (best_ == &both_ || best_ == &full_)) balance(measured.cpu, measured.gpu);
    if (kind == Kind::deferred) balance(measured.cpu, measured.seconds);
  }

 private:
  // The host gets less to do while it takes longer than what should hide it, and slowly more again (APEX-41).
  void balance(double host, double hiding) {
    share_ = std::clamp(share_ * (host > hiding ? kLess : kMore), kLeast, 1.0);
  }

  const Schedule& choose(const State& state, const Cost&, const Schedules& schedules) override {
    schedules.gpu_only(alone_);
    best_ = nullptr;
    offer(alone_);
    if (state.cpu().empty()) return *best_;
    schedules.paying(one_), offer(one_);
    schedules.pipelined(both_, share_, &full_), offer(both_), offer(full_);
    if (!both_.uses_host()) schedules.balanced(all_), offer(all_);  // with anybody hidden, more only dilute the pass
    if (!alone_.idle()) schedules.deferred(later_, share_), offer(later_);
    return *best_;
  }

  void offer(const Schedule& schedule) {
    consider(schedule);
    if (best_ == nullptr || schedule.rate() > best_->rate()) best_ = &schedule;
  }

  Correction correction_;
  const Cost* believed_ = nullptr;
  double share_ = 1;
  Schedule alone_, both_, full_, all_, one_, later_;
  const Schedule* best_ = nullptr;
};

}  // namespace

std::unique_ptr<Policy> make_adaptive(const Options& options) { return std::make_unique<Adaptive>(options); }

}  // namespace helm::scheduling
