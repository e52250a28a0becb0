#include "kernels/isa.h"

#include "bindings/bindings.h"

namespace helm {

void register_isa(py::module_& module) {
  module.def("isa", [] { return std::string(kernels().name); });
  module.def("supported_isas", &supported_isas);
  module.def("emulated_isas", &emulated_isas);
  module.def("select_isa", &select_isa, py::arg("name"));
}

}  // namespace helm
