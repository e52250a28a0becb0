// The Python module `helmsman.scheduler._scheduling`; its contract is scheduler/_scheduling.pyi.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "convert.h"
#include "results.h"
#include "simulation.h"

namespace py = pybind11;
using namespace helm::scheduling;

namespace {

py::dict simulate_requests(const py::dict& columns, const py::object& cost, const py::object& believed,
                           const py::object& limits, const std::string& policy, const py::dict& options,
                           int64_t replicas, const std::string& router, bool reference, bool log, bool check) {
  const Columns from(columns);
  const Setup setup{{cost_of(cost), cost_of(believed)}, limits_of(limits), policy, options_of(options), replicas,
                    router, reference, log, check};
  std::unique_ptr<Simulated> done;
  {
    const py::gil_scoped_release released;
    done = simulate(from.requests, setup);
  }
  return results(std::move(*done));
}

py::tuple pass_times(const py::object& cost, const std::string& kind, const py::object& first,
                     const py::object& second, const py::object& cohort, int done_layers) {
  const Load load{{work_of(first), work_of(second)}, work_of(cohort), done_layers};
  const Times times = time_of(cost_of(cost), kind_of(kind), load);
  return py::make_tuple(times.seconds, times.gpu, times.cpu, times.link);
}

}  // namespace

PYBIND11_MODULE(_scheduling, module) {
  module.doc() = "Scheduling: policies, and the simulation of requests that they serve.";
  module.def("simulate", &simulate_requests, py::arg("columns"), py::arg("cost"), py::arg("believed"),
             py::arg("limits"), py::arg("policy"), py::arg("options"), py::arg("replicas") = 1,
             py::arg("router") = "round-robin", py::arg("reference") = false, py::arg("log") = false,
             py::arg("check") = false);
  module.def("pass_times", &pass_times, py::arg("cost"), py::arg("kind"), py::arg("first"), py::arg("second"),
             py::arg("cohort"), py::arg("done_layers") = 0);
}
