// PythonPolicy: a policy that is an object of Python (scheduler/policies.py: PythonPolicy), asked once a pass.
#pragma once
#include <pybind11/pybind11.h>

#include "scheduling/policy.h"

namespace helm::scheduling {

// Of a name and options of a native policy, or of a PolicyMaker. To be called, and kept, with the interpreter's lock;
// the maker itself takes it when it is asked.
PolicyMaker policy_maker_of(const pybind11::object& policy, const pybind11::dict& options);

// What such a policy reads and asks for: `ReplicaState` of scheduler/_scheduling.pyi.
void register_replica_state(pybind11::module_& module);

}  // namespace helm::scheduling
