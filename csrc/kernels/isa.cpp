#include "kernels/isa.h"

#if defined(__aarch64__)
#include <sys/auxv.h>
#elif defined(__x86_64__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>
#include <stdexcept>

#include "kernels/cpu_features.h"

namespace helm {
namespace {

#if defined(__x86_64__)
// Linux lets a process use tiles once it has asked for them: all its threads, for a thread's state becomes larger.
bool may_use_tiles() {
  constexpr int kAsk = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool allowed = syscall(SYS_arch_prctl, kAsk, kTileData) == 0;
  return allowed;
}
#endif

std::vector<const Kernels*> supported() {
  std::vector<const Kernels*> found;
#if defined(__x86_64__)
  const CpuFeatures& has = cpu_features();
  const bool bf16 = has.avx512_vnni && has.avx512_bf16;
  if (bf16 && has.amx_bf16 && may_use_tiles()) found.push_back(&amx_kernels());
  if (bf16) found.push_back(&avx512bf16_kernels());
  if (has.avx512_vnni) found.push_back(&avx512vnni_kernels());
  if (has.avx512) found.push_back(&avx512_kernels());
  if (has.avx_vnni) found.push_back(&avxvnni_kernels());
  if (has.avx2) found.push_back(&avx2_kernels());
#elif defined(__aarch64__)
  const bool dot = getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
  const bool i8mm = dot && getauxval(AT_HWCAP2) & HWCAP2_I8MM;
  if (i8mm && getauxval(AT_HWCAP2) & HWCAP2_BF16) found.push_back(&neonbf16_kernels());
  if (i8mm) found.push_back(&neoni8mm_kernels());
  if (dot) found.push_back(&neondot_kernels());
  found.push_back(&neon_kernels());
#endif
  found.push_back(&portable_kernels());
  return found;
}

std::vector<const Kernels*> emulated() {
#if defined(__x86_64__)
  std::vector<const Kernels*> found;
  if (cpu_features().avx512) found.push_back(&avx512bf16_emulated_kernels());
  if (cpu_features().avx2) found.push_back(&avxvnni_emulated_kernels());
  if (cpu_features().avx2) found.push_back(&amx_emulated_kernels());
  return found;
#else
  return {};
#endif
}

std::vector<std::string> names_of(const std::vector<const Kernels*>& tables) {
  std::vector<std::string> names;
  for (const Kernels* table : tables) names.emplace_back(table->name);
  return names;
}

std::atomic<const Kernels*>& selected() {
  static std::atomic<const Kernels*> table{supported().front()};
  return table;
}

// Puts the table called `name` in use, if it is one of these.
bool select_from(const std::vector<const Kernels*>& tables, const std::string& name) {
  for (const Kernels* table : tables) {
    if (name != table->name) continue;
    selected().store(table, std::memory_order_release);
    return true;
  }
  return false;
}

}  // namespace

const Kernels& kernels() { return *selected().load(std::memory_order_acquire); }

std::vector<std::string> supported_isas() { return names_of(supported()); }

std::vector<std::string> emulated_isas() { return names_of(emulated()); }

void select_isa(const std::string& name) {
  if (select_from(supported(), name) || select_from(emulated(), name)) return;
  std::string known;
  for (const std::string& each : supported_isas()) known += (known.empty() ? "" : ", ") + each;
  throw std::invalid_argument("instruction set '" + name + "' is not supported here; choose from " + known);
}

}  // namespace helm
