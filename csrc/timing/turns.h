// A pass of several batches that take turns, followed stage after stage: every lane does its tasks one at a time, in
// the order in which lowering makes them, at their own speeds. What `Loop` does for whole graphs is done here for
// stages that are put together again and again.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

namespace helm {

// Numbers of tasks, each with the seconds of handing over after it.
using Awaited = std::vector<std::pair<int, double>>;

// A task of a stage: its lane, its seconds, and those of joining after the task before on that lane. It waits for tasks
// of its own stage, for outputs of the stage before, and for a buffer (`buffered`).
struct TimedTask {
  int lane;
  double seconds, join;
  Awaited own, before;
  bool buffered;
};

using TimedTasks = std::vector<TimedTask>;

// The tasks of a block, or of an end of the model, by batch: those in the turn that ends the stage before (`head`),
// those in the turn after (`tail`), and those after all turns (`last`). Tasks are numbered in that order.
//
// `outputs`: the tasks that make what the next stage reads; `users`: those that use what came to the accelerator `to`;
// `launching`: seconds of the thread that launches for all devices.
struct TurnStage {
  std::vector<TimedTasks> head, tail;
  TimedTasks last;
  std::vector<int> outputs, users;
  int to;
  double launching;
};

// Seconds until all tasks of the stages of a model are done, on so many lanes, with `buffers` on every accelerator for
// stages to which something comes. Throws std::invalid_argument for stages that do not follow each other.
double followed(const std::vector<const TurnStage*>& stages, int buffers, int lanes);

}  // namespace helm
