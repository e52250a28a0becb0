// Which instruction set's kernels are in use; one build holds all that its architecture knows.
#pragma once
#include <string>
#include <vector>

#include "kernels.h"

namespace helm {

const Kernels& portable_kernels();
#if defined(__x86_64__)
const Kernels& avx2_kernels();
const Kernels& avx512_kernels();
const Kernels& avx512vnni_kernels();
#elif defined(__aarch64__)
const Kernels& neon_kernels();
const Kernels& neondot_kernels();
#endif

// The table in use: the best supported one until select_isa.
const Kernels& kernels();

// Names of what this processor runs, best first.
std::vector<std::string> supported_isas();

// Throws std::invalid_argument when `name` is unknown or unsupported here.
void select_isa(const std::string& name);

}  // namespace helm
