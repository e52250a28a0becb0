// What a simulation found, as numpy arrays by name; scheduler/_scheduling.pyi says what they are.
#pragma once
#include <pybind11/pybind11.h>

#include "scheduling/simulation.h"

namespace helm::scheduling {

pybind11::dict results(Simulated done);

}  // namespace helm::scheduling
