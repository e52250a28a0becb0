// The policies, one file each; scheduler/policies.py documents them and their options.
#pragma once
#include <memory>

#include "policy.h"

namespace helm::scheduling {

std::unique_ptr<Policy> make_gpu_only(const Options& options);

}  // namespace helm::scheduling
