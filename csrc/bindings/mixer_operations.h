// Operations of mixers that keep states from Python.
#pragma once
#include <memory>

#include "bindings/spec_fields.h"

namespace helm {

std::unique_ptr<Operation> convolution_of(Keeper& keeper, const py::dict& fields);
std::unique_ptr<Operation> recurrence_of(Keeper& keeper, const py::dict& fields);
std::unique_ptr<Operation> gated_norm_of(Keeper& keeper, const py::dict& fields);

}  // namespace helm
