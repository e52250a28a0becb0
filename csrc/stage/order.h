// What follows from the order of a stage's operations.
#pragma once
#include "stage/stage_spec.h"

namespace helm {

// Sets whether threads wait after operations: not while those that follow read nothing of other threads; and which
// norms are kept in the workspace.
void share_values(StageSpec& spec);

// By operation, and after the last: whether only the hidden states are live there. What comes of the last tokens alone
// does not count, because no chunk follows.
std::vector<bool> cuts(const StageSpec& spec);

}  // namespace helm
