// A pass of several batches that take turns, followed stage after stage: every lane does its tasks one at a time, in
// the order in which lowering makes them, at their own speeds. What `Loop` does for whole graphs is done here for
// stages that are put together again and again.
#pragma once
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

namespace helm {

// Numbers of tasks, each with the seconds of handing over after it.
using Awaited = std::vector<std::pair<int, double>>;

// What the fields are is told in timing/_clock.pyi.
struct TimedTask {
  int lane;
  double seconds, join;
  Awaited own, before;
  bool buffered;
};

using TimedTasks = std::vector<TimedTask>;

struct TurnStage {
  std::vector<TimedTasks> head, tail;
  TimedTasks last;
  std::vector<int> outputs, users;
  int to;
  double launching;
};

// Seconds until all tasks of the stages of a model are done, on so many lanes, with `buffers` (two at least) on every
// accelerator for stages to which something comes. Throws std::invalid_argument for stages that do not follow each
// other.
double followed(const std::vector<std::shared_ptr<TurnStage>>& stages, int buffers, int lanes);

}  // namespace helm
