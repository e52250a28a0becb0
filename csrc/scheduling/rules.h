// Bindings of the rules that policies decide by, for whoever wants to look at one alone.
#pragma once
#include <pybind11/pybind11.h>

namespace helm::scheduling {

void register_rules(pybind11::module_& module);

}  // namespace helm::scheduling
