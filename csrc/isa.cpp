#include "isa.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

#include <atomic>
#include <stdexcept>

namespace helm {
namespace {

std::vector<const Kernels*> supported() {
  std::vector<const Kernels*> found;
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx2 && avx512 && __builtin_cpu_supports("avx512vnni")) found.push_back(&avx512vnni_kernels());
  if (avx2 && avx512) found.push_back(&avx512_kernels());
  if (avx2) found.push_back(&avx2_kernels());
#elif defined(__aarch64__)
  if (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) found.push_back(&neondot_kernels());
  found.push_back(&neon_kernels());
#endif
  found.push_back(&portable_kernels());
  return found;
}

std::atomic<const Kernels*>& selected() {
  static std::atomic<const Kernels*> table{supported().front()};
  return table;
}

}  // namespace

const Kernels& kernels() { return *selected().load(std::memory_order_acquire); }

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const Kernels* table : supported()) names.emplace_back(table->name);
  return names;
}

void select_isa(const std::string& name) {
  std::string known;
  for (const Kernels* table : supported()) {
    if (name == table->name) return selected().store(table, std::memory_order_release);
    known += (known.empty() ? "" : ", ") + std::string(table->name);
  }
  throw std::invalid_argument("instruction set '" + name + "' is not supported here; choose from " + known);
}

}  // namespace helm
