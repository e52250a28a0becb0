// The Python module `helmsman.scheduler._scheduling`; its contract is scheduler/_scheduling.pyi.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "convert.h"

namespace py = pybind11;

PYBIND11_MODULE(_scheduling, module) {
  using namespace helm::scheduling;
  module.doc() = "Scheduling: policies, and the simulation of requests that they serve.";
  module.def(
      "pass_times",
      [](const py::object& cost, const std::string& kind, const py::object& first, const py::object& second,
         const py::object& cohort, int done_layers) {
        const Load load{{work_of(first), work_of(second)}, work_of(cohort), done_layers};
        const Times times = time_of(cost_of(cost), kind_of(kind), load);
        return py::make_tuple(times.seconds, times.gpu, times.cpu, times.link);
      },
      py::arg("cost"), py::arg("kind"), py::arg("first"), py::arg("second"), py::arg("cohort"),
      py::arg("done_layers") = 0);
}
