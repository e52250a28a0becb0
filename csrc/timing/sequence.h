// Tasks of a pass that run one at a time: each begins when the one before it is done, and what it waits for on other
// lanes has been handed over and joined, as in `Loop`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace helm {

// Seconds until the last of `count` tasks is done, each of a kind that takes `seconds`.
//
// `waits`: of every task that waits for other lanes, in order, its number, its lane, the task before it on its lane
// (-1: none), for how many tasks of other lanes it waits, and of each of these its number and its lane; `joins`: by
// lane seconds after the task before; `handovers`: from lane to lane, `joins.size()` squared. Throws
// std::invalid_argument for numbers that are none, and for a task that waits for a later one.
double sequence_seconds(const int32_t* kinds, size_t count, const std::vector<double>& seconds, const int64_t* waits,
                        size_t waits_size, const std::vector<double>& joins, const std::vector<double>& handovers);

}  // namespace helm
