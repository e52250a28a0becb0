// From Python values of scheduler/*.py (limits, costs, requests) to those of the native core.
#pragma once
#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "scheduling/cost.h"
#include "scheduling/limits.h"
#include "scheduling/policy.h"
#include "scheduling/requests.h"
#include "scheduling/target.h"

namespace helm::scheduling {

Cost cost_of(const pybind11::object& cost);        // an IterationCost
Limits limits_of(const pybind11::object& limits);  // a Limits
Work work_of(const pybind11::object& work);        // a Work
Kind kind_of(const std::string& name);             // throws std::invalid_argument
const char* name_of(Kind kind);
Target target_of(const pybind11::object& target);  // a Target, or None
Options options_of(const pybind11::dict& options);

// The rows of schemas/requests.py, and what holds their memory.
struct Columns {
  explicit Columns(const pybind11::dict& columns);
  std::vector<pybind11::object> arrays;
  Requests requests;
};

}  // namespace helm::scheduling
