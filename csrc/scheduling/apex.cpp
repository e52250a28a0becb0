// apex: two sub-batches where the inequality holds, else cohorts on the host that nobody waits for (APEX, Algorithm 1).
#include <algorithm>

#include "scheduling/hybrid.h"
#include "scheduling/inequalities.h"
#include "scheduling/policies.h"

namespace helm::scheduling {
namespace {

double at(const Line& line, int64_t count) { return line(static_cast<double>(count)); }

// `count` decodes on the host, as long as all of them are on average.
Work average(const State& state, int64_t count) {
  const auto all = static_cast<int64_t>(state.cpu().size());
  Work work;
  work.cpu_requests = count, work.cpu_kv = (state.cpu_kv() + all) * count / all;
  return work;
}

class Apex final : public Hybrid {
 public:
  explicit Apex(const Options& options)
      : Hybrid({true, true}, {options.whole("saturation")}, pool_of(options)),
        threshold_(options.number("threshold")),
        printed_(options.flag("printed")) {}

 private:
  const Schedule& choose(const State& state, const Cost& cost, const Schedules& schedules) override {
    schedules.gpu_only(alone_);
    consider(alone_);
    if (state.cpu().empty() || alone_.idle()) return alone_;  // with its prompts (E-APEX-09)
    schedules.pipelined(both_);
    consider(both_);
    if (both_.uses_host() && pays(state, cost)) return both_;
    const bool goes = !state.cohorts().empty();
    schedules.deferred(later_);
    if (goes && !enough(state)) schedules.deferred(later_, 1, false);
    consider(later_);
    return goes || enough(state) ? later_ : alone_;
  }

  // Inequality (5), or its form for passes with prompts.
  bool pays(const State& state, const Cost& cost) const {
    const Work& first = both_.load.half[0];
    Decoding decodes = decoding(state, cost);
    if (both_.prompts == 0) {
      decodes.cpu_rate = host_rate(state, cost, window(decodes));
      return pipelining_pays(decodes);
    }
    const double linear = at(cost.linear, first.tokens - first.cpu_requests), attention = device_attention(cost, first);
    decodes.cpu_rate = host_rate(state, cost, linear + decodes.linear + attention);
    return mixed_pays(decodes, linear, attention, printed_);
  }

  static Decoding decoding(const State& state, const Cost& cost) {
    const int64_t count = state.gpu().count(), kv = state.gpu().kv() + count;
    const double attention = decode_attention(cost, static_cast<double>(count), static_cast<double>(kv));
    return {at(cost.linear, count), attention, count > 0 ? static_cast<double>(kv) / attention : 0.0, 0.0};
  }

  // Tokens that the host attends to within `window` seconds of a layer, as far as there are any, in each of them (3.4).
  static double host_rate(const State& state, const Cost& cost, double window) {
    int64_t fits = 1, above = static_cast<int64_t>(state.cpu().size()) + 1;
    while (above - fits > 1) {
      const int64_t middle = fits + (above - fits) / 2;
      (host_layer(cost, average(state, middle)) <= window ? fits : above) = middle;
    }
    const Work work = average(state, fits);
    return static_cast<double>(work.cpu_kv) / std::max(window, host_layer(cost, work));
  }

  // Another cohort pays for the thread that serves it if all cohorts together are that many times as large as the batch
  // (APEX-27).
  bool enough(const State& state) const {
    const int64_t members = state.cohorts().members() + static_cast<int64_t>(later_.cpu[0].size());
    return static_cast<double>(members) >= threshold_ * static_cast<double>(state.gpu().count());
  }

  double threshold_;
  bool printed_;
  Schedule alone_, both_, later_;
};

}  // namespace

std::unique_ptr<Policy> make_apex(const Options& options) { return std::make_unique<Apex>(options); }

}  // namespace helm::scheduling
