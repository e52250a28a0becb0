// The Python module `helmsman.executor._kernels`; its contract is executor/_kernels.pyi.
#include <string_view>

#include "bindings/bindings.h"

static_assert(std::string_view(PYBIND11_PLATFORM_ABI_ID).find("helmsman_kernels") != std::string_view::npos,
              "pybind11 is the module's own");

PYBIND11_MODULE(_kernels, module) {
  module.doc() = "Native kernels of the executor.";
  helm::register_isa(module);
  helm::register_memory(module);
  helm::register_linear(module);
  helm::register_probe(module);
  helm::register_experts(module);
  helm::register_mixers(module);
  helm::register_stage(module);
  helm::register_queue(module);
  helm::register_copy_engine(module);
  helm::register_submissions(module);
  helm::register_compress(module);
  helm::register_disk(module);
  helm::register_serving_weights(module);
  helm::register_serving(module);
}
