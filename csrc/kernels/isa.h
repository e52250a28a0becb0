// Which instruction set's kernels are in use; one build holds all that its architecture knows.
#pragma once
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace helm {

const Kernels& portable_kernels();
const MixerKernels& portable_mixers();
#if defined(__x86_64__)
const Kernels& avx2_kernels();
const MixerKernels& avx2_mixers();
const Kernels& avxvnni_kernels();
const Kernels& avxvnni_emulated_kernels();  // for AVX2: what AVX-VNNI does, by other instructions
const Kernels& avx512_kernels();
const MixerKernels& avx512_mixers();
const Kernels& avx512vnni_kernels();
const Kernels& avx512bf16_kernels();
const Kernels& avx512bf16_emulated_kernels();  // for AVX-512: what BF16 units do, by other instructions
const Kernels& amx_kernels();
const Kernels& amx_emulated_kernels();  // for AVX2: what tiles do, in plain C++
#elif defined(__aarch64__)
const Kernels& neon_kernels();
const MixerKernels& neon_mixers();
const Kernels& neondot_kernels();
const Kernels& neoni8mm_kernels();
const Kernels& neonbf16_kernels();
#endif

// The table in use: the best supported one until select_isa.
const Kernels& kernels();

// Names of what this processor runs, the one in use at first before the others.
std::vector<std::string> supported_isas();

// Names of what other processors have and this one imitates, slower: for tests, and to see what it does to accuracy.
std::vector<std::string> emulated_isas();

// Throws std::invalid_argument when `name` is unknown, or neither supported nor emulated here.
void select_isa(const std::string& name);

}  // namespace helm
