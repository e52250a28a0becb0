// The Python module `helmsman.scheduler._scheduling`; its contract is scheduler/_scheduling.pyi.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheduling/convert.h"
#include "scheduling/python_policy.h"
#include "scheduling/results.h"
#include "scheduling/rules.h"
#include "scheduling/scheduler.h"
#include "scheduling/simulation.h"

namespace py = pybind11;
using namespace helm::scheduling;

static_assert(std::string_view(PYBIND11_PLATFORM_ABI_ID).find("helmsman_scheduling") != std::string_view::npos,
              "pybind11 is the module's own");

namespace {

py::dict simulate_requests(const py::dict& columns, const py::object& cost, const py::object& believed,
                           const py::object& limits, const py::object& policy, const py::dict& options,
                           int64_t replicas, const std::string& router, bool reference, bool log, bool check,
                           const py::object& target) {
  const Columns from(columns);
  const Setup setup{{cost_of(cost), cost_of(believed)},
                    limits_of(limits),
                    policy_maker_of(policy, options),
                    replicas,
                    router,
                    reference,
                    log,
                    check,
                    target_of(target)};
  std::unique_ptr<Simulated> done;
  {
    const py::gil_scoped_release released;
    done = simulate(from.requests, setup);
  }
  return results(std::move(*done));
}

py::tuple pass_times(const py::object& cost, const std::string& kind, const py::object& first, const py::object& second,
                     const std::vector<std::pair<int, py::object>>& joining) {
  Load load{{work_of(first), work_of(second)}, {}};
  for (const auto& [layers, work] : joining) load.joining.insert(load.place(layers), {layers, work_of(work)});
  const Times times = time_of(cost_of(cost), kind_of(kind), load);
  return py::make_tuple(times.seconds, times.gpu, times.cpu, times.link);
}

// A value of scheduler/decision.py.
py::object decision_of(const Scheduler& scheduler, const Decision& made) {
  const auto requests = [&](std::vector<Id> ids) {
    py::tuple found(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) found[i] = scheduler.request(ids[i]);
    return found;
  };
  std::vector<Id> decodes = made.decodes > 0 ? scheduler.state().gpu().members() : std::vector<Id>{};
  std::sort(decodes.begin(), decodes.end());
  const py::module_ values = py::module_::import("helmsman.scheduler.decision");
  py::tuple prompts(made.prompts.size());
  for (size_t i = 0; i < made.prompts.size(); ++i) {
    const auto& [id, tokens, past, home] = made.prompts[i];
    prompts[i] = values.attr("Chunk")(scheduler.request(id), tokens, past, home == Home::gpu ? "gpu" : "cpu");
  }
  return values.attr("SchedulingDecision")(name_of(made.kind), prompts, requests(decodes), requests(made.cpu[0]),
                                           requests(made.cpu[1]), requests(made.out), requests(made.in),
                                           requests(made.dropped), py::tuple(py::cast(made.evicted)),
                                           requests(made.kept), py::tuple(py::cast(made.forgotten)));
}

py::object decide(Scheduler& scheduler) {
  const Decision* made = scheduler.decide();
  return made == nullptr ? py::none() : decision_of(scheduler, *made);
}

void bind_scheduler(py::module_& module) {
  py::class_<Scheduler>(module, "Scheduler")
      .def(py::init([](const py::object& cost, const py::object& limits, const py::object& policy,
                       const py::dict& options, int64_t hash_block) {
             return std::make_unique<Scheduler>(cost_of(cost), limits_of(limits), policy_maker_of(policy, options)(),
                                                hash_block);
           }),
           py::arg("cost"), py::arg("limits"), py::arg("policy"), py::arg("options"), py::arg("hash_block") = 0)
      .def("add", &Scheduler::add, py::arg("request"), py::arg("prompt"), py::arg("output"), py::arg("priority") = 0,
           py::arg("hashes") = std::vector<int64_t>())
      .def("cancel", &Scheduler::cancel, py::arg("request"))
      .def("reset", &Scheduler::reset)
      .def("decide", &decide)
      .def("commit", &Scheduler::commit, py::arg("seconds"), py::arg("ended") = std::vector<int64_t>(),
           py::arg("yielded") = std::nullopt)
      .def(
          "observe",
          [](Scheduler& scheduler, double gpu, double cpu, double link) { scheduler.observe({0.0, gpu, cpu, link}); },
          py::arg("gpu"), py::arg("cpu"), py::arg("link"))
      .def_property_readonly("waiting", [](const Scheduler& scheduler) { return scheduler.state().waiting().size(); })
      .def_property_readonly("running", [](const Scheduler& scheduler) { return scheduler.state().running(); })
      .def_property_readonly("pass_sums",
                             [](const Scheduler& scheduler) {
                               const auto sums = [](const Times& times) {
                                 return py::make_tuple(times.seconds, times.gpu, times.cpu);
                               };
                               return py::make_tuple(sums(scheduler.priced()), sums(scheduler.took()));
                             })
      .def("free",
           [](const Scheduler& scheduler) {
             return py::make_tuple(scheduler.state().free(Home::gpu), scheduler.state().free(Home::cpu));
           })
      .def("check", [](const Scheduler& scheduler) { scheduler.state().check(); });
}

}  // namespace

PYBIND11_MODULE(_scheduling, module) {
  module.doc() = "Scheduling: policies, and the simulation of requests that they serve.";
  module.def("simulate", &simulate_requests, py::arg("columns"), py::arg("cost"), py::arg("believed"),
             py::arg("limits"), py::arg("policy"), py::arg("options"), py::arg("replicas") = 1,
             py::arg("router") = "round-robin", py::arg("reference") = false, py::arg("log") = false,
             py::arg("check") = false, py::arg("target") = py::none());
  register_replica_state(module);
  bind_scheduler(module);
  module.def("pass_times", &pass_times, py::arg("cost"), py::arg("kind"), py::arg("first"), py::arg("second"),
             py::arg("joining"));
  register_rules(module);
}
