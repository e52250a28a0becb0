// The caches of an operation from Python.
#pragma once
#include "stage/append_operation.h"
#include "bindings/spec_fields.h"

namespace helm {

// The fields keys, values, passing_keys and passing_values.
BlockCaches block_caches(Keeper& keeper, const Attention& shape, const py::dict& fields);
// Where else new rows of some heads are kept; nothing when the field is missing.
KeptHeads kept_heads(Keeper& keeper, const Attention& shape, const py::dict& fields, const char* name);

}  // namespace helm
