// The policies, one file each; scheduler/policies.py documents them and their options.
#pragma once
#include <memory>

#include "scheduling/policy.h"

namespace helm::scheduling {

std::unique_ptr<Policy> make_gpu_only(const Options& options);
std::unique_ptr<Policy> make_simple_offload(const Options& options);
std::unique_ptr<Policy> make_symmetric(const Options& options);
std::unique_ptr<Policy> make_fastdecode_plus(const Options& options);
std::unique_ptr<Policy> make_neo(const Options& options);
std::unique_ptr<Policy> make_apex(const Options& options);
std::unique_ptr<Policy> make_adaptive(const Options& options);

}  // namespace helm::scheduling
