// The Python values of scheduler/*.py as the core's.
#pragma once
#include <pybind11/pybind11.h>

#include <string>
#include <vector>

#include "cost.h"
#include "limits.h"
#include "policy.h"
#include "requests.h"

namespace helm::scheduling {

Cost cost_of(const pybind11::object& cost);      // an IterationCost
Limits limits_of(const pybind11::object& limits);  // a Limits
Work work_of(const pybind11::object& work);      // a Work
Kind kind_of(const std::string& name);           // throws std::invalid_argument
const char* name_of(Kind kind);
Options options_of(const pybind11::dict& options);

// The rows of schemas/requests.py, and what holds their memory.
struct Columns {
  explicit Columns(const pybind11::dict& columns);
  std::vector<pybind11::object> arrays;
  Requests requests;
};

}  // namespace helm::scheduling
