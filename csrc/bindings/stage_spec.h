// A StageSpec from Python's dictionary of the same name.
#pragma once
#include <memory>

#include "stage/stage.h"
#include "bindings/bindings.h"

namespace helm {

// The spec and what keeps its pointers alive. Destroyed with the GIL held.
struct ParsedSpec {
  StageSpec spec;
  std::vector<std::unique_ptr<View>> views;
  std::vector<Buffer> buffers;
};

// Throws KeyError or TypeError for missing or mistyped fields, ValueError for inconsistent ones.
ParsedSpec parse_spec(const py::dict& fields);

}  // namespace helm
