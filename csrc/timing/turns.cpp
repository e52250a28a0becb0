#include "timing/turns.h"

#include <algorithm>
#include <limits>
#include <map>
#include <stdexcept>

namespace helm {
namespace {

// A stage under way: when its tasks ended, and when a buffer of its accelerator was free.
struct ActiveStage {
  const TurnStage* stage;
  const ActiveStage* before;
  double free;
  std::vector<double> ends = {};

  double end_of(int task) const {
    if (task < 0 || static_cast<size_t>(task) >= ends.size()) throw std::invalid_argument("a task that was not done");
    return ends[static_cast<size_t>(task)];
  }

  double output(int number) const {
    if (before == nullptr || number < 0 || static_cast<size_t>(number) >= before->stage->outputs.size())
      throw std::invalid_argument("an output that the stage before has not");
    return before->end_of(before->stage->outputs[static_cast<size_t>(number)]);
  }

  void run(const TimedTasks& tasks, std::vector<double>& lanes) {
    for (const TimedTask& task : tasks) {
      if (task.lane < 0 || static_cast<size_t>(task.lane) >= lanes.size()) throw std::invalid_argument("no such lane");
      double& lane = lanes[static_cast<size_t>(task.lane)];
      double start = std::max(lane + task.join, 0.0);
      if (task.buffered) start = std::max(start, free);
      for (const auto& [number, after] : task.own) start = std::max(start, end_of(number) + after);
      for (const auto& [number, after] : task.before) start = std::max(start, output(number) + after);
      lane = start + task.seconds;
      ends.push_back(lane);
    }
  }

  // When all that came for it was used.
  double used() const {
    double last = 0.0;
    for (int user : stage->users) last = std::max(last, end_of(user));
    return last;
  }
};

}  // namespace

double followed(const std::vector<std::shared_ptr<TurnStage>>& stages, int buffers, int lanes) {
  constexpr int kMostLanes = 1 << 12;
  if (stages.empty() || buffers < 2 || lanes < 1 || lanes > kMostLanes)
    throw std::invalid_argument("needs stages, two buffers or more, and between 1 and 4096 lanes");
  for (const auto& stage : stages)
    if (stage == nullptr) throw std::invalid_argument("no stage");
  std::vector<double> free(static_cast<size_t>(lanes), -std::numeric_limits<double>::infinity());
  std::vector<ActiveStage> active;
  active.reserve(stages.size());  // stages point at the one before
  std::map<int, std::vector<size_t>> brought;
  active.push_back({stages[0].get(), nullptr, 0.0});
  for (const TimedTasks& head : stages[0]->head) active[0].run(head, free);
  for (size_t number = 1; number < stages.size(); ++number) {
    ActiveStage& under = active.back();
    const TurnStage& next = *stages[number];
    if (!under.stage->users.empty()) brought[under.stage->to].push_back(number - 1);
    const std::vector<size_t>& earlier = brought[next.to];
    const size_t kept = static_cast<size_t>(buffers);
    active.push_back({&next, &under, earlier.size() >= kept ? active[earlier[earlier.size() - kept]].used() : 0.0});
    if (under.stage->tail.size() != next.head.size()) throw std::invalid_argument("stages of different batches");
    for (size_t batch = 0; batch < next.head.size(); ++batch) {
      under.run(under.stage->tail[batch], free);
      active.back().run(next.head[batch], free);
    }
  }
  for (const TimedTasks& tail : stages.back()->tail) active.back().run(tail, free);
  active.back().run(stages.back()->last, free);
  double launching = 0.0;
  for (const auto& stage : stages) launching += stage->launching;
  return std::max(*std::max_element(free.begin(), free.end()), launching);
}

}  // namespace helm
