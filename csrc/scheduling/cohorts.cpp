#include "scheduling/cohorts.h"

#include <algorithm>
#include <tuple>

namespace helm::scheduling {
namespace {

bool among(const std::vector<int64_t>& numbers, int64_t number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

}  // namespace

void Cohort::join(Load& load, int all) const {
  if (!ready()) return;
  Work& joining = load.joining.insert(load.place(layers), {layers, work})->work;
  if (!ends(all)) return;
  joining.cpu_requests = joining.cpu_kv = 0;
  load.half[0].outputs += work.outputs;
}

size_t Cohorts::place(int64_t number) const {
  size_t i = 0;
  while (all_[i].number != number) ++i;
  return i;
}

int64_t Cohorts::members() const {
  int64_t count = 0;
  for (const Cohort& cohort : all_) count += static_cast<int64_t>(cohort.members.size());
  return count;
}

std::vector<const Cohort*> Cohorts::furthest() const {
  std::vector<const Cohort*> found;
  for (const Cohort& cohort : all_) found.push_back(&cohort);
  std::stable_sort(found.begin(), found.end(), [](auto* one, auto* other) { return one->layers > other->layers; });
  return found;
}

int64_t Cohorts::begin() {
  all_.emplace_back().number = ++last_;
  return last_;
}

void Cohorts::enter(int64_t number, Id id, int64_t cached) {
  Cohort& cohort = all_[place(number)];
  cohort.members.push_back(id);
  cohort.work.decode_on_cpu(cached);
}

void Cohorts::leave(int64_t number, Id id, int64_t cached) {
  const size_t at = place(number);
  Cohort& cohort = all_[at];
  cohort.members.erase(std::find(cohort.members.begin(), cohort.members.end(), id));
  Work gone;
  gone.decode_on_cpu(cached);
  cohort.work -= gone;
  if (cohort.members.empty()) all_.erase(all_.begin() + static_cast<std::ptrdiff_t>(at));
}

void Cohorts::join(Load& load, const Cost& cost) const {
  for (const Cohort& cohort : all_) cohort.join(load, cost.layers);
  if (cost.stages == 1 || all_.empty()) return;
  Cohorts ahead = *this;
  std::vector<int64_t> ended;
  const double seconds = time_of(cost, Kind::gpu_only, load).seconds / cost.stages;
  for (int slot = 1; slot < cost.stages; ++slot) {
    ahead.slot(seconds, true, cost, ended);
    for (const Cohort& cohort : ahead.all_)
      if (!among(ended, cohort.number)) cohort.join(load, cost.layers);
  }
}

std::vector<int64_t> Cohorts::pass(double seconds, bool deferred, const Cost& cost) {
  std::vector<int64_t> ended;
  for (int each = 0; each < cost.stages; ++each) slot(seconds / cost.stages, deferred, cost, ended);
  return ended;
}

void Cohorts::slot(double seconds, bool deferred, const Cost& cost, std::vector<int64_t>& ended) {
  ++passes_;
  for (Cohort& cohort : all_) {
    if (!deferred || !cohort.ready() || among(ended, cohort.number)) continue;
    if (cohort.ends(cost.layers)) {
      ended.push_back(cohort.number);
    } else {
      cohort.left = host_layer(cost, cohort.work), cohort.since = passes_, cohort.hops = cost.hop_before(cohort.layers);
    }
  }
  double rest = seconds;
  for (Cohort* task : tasks()) {
    const double spent = std::min(rest, task->left);
    rest -= spent, task->left -= spent, task->begun = task->begun || spent > 0;
    if (task->left <= 1e-12 * seconds) task->left = 0, task->begun = false, ++task->layers;
  }
  for (Cohort& cohort : all_) cohort.hops = false;
}

// What there is for the host to do, in its order.
std::vector<Cohort*> Cohorts::tasks() {
  std::vector<Cohort*> found;
  for (Cohort& cohort : all_)
    if (!cohort.ready() && !cohort.hops) found.push_back(&cohort);
  std::sort(found.begin(), found.end(), [this](auto* one, auto* other) { return before(*one, *other); });
  return found;
}

// Of those that came with one pass, the accelerator got to the first layer first.
bool Cohorts::before(const Cohort& one, const Cohort& other) const {
  const auto key = [this](const Cohort& each) {
    const int64_t layer = pool_.order == Order::last ? -each.layers : each.layers;
    return std::make_tuple(!each.begun, pool_.order == Order::arrival ? each.since : 0, layer, each.number);
  };
  return key(one) < key(other);
}

}  // namespace helm::scheduling
