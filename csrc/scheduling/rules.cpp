#include "scheduling/rules.h"

#include <pybind11/stl.h>

#include <vector>

#include "scheduling/convert.h"
#include "scheduling/correction.h"
#include "scheduling/halves.h"
#include "scheduling/inequalities.h"

namespace py = pybind11;

namespace helm::scheduling {
namespace {

Decoding decoding(double linear, double attention, double gpu_rate, double cpu_rate) {
  return {linear, attention, gpu_rate, cpu_rate};
}

// Halves of decodes on top of `cached` tokens, offered in order; then as many of `prompts` as are dropped from the end.
py::tuple fill_halves(const py::object& cost_object, const py::object& first, const std::vector<int64_t>& cached,
                      const std::vector<py::object>& prompts, int64_t tokens, double share) {
  const Cost cost = cost_of(cost_object);
  Halves halves(cost, work_of(first), share);
  std::vector<int> taken;
  for (const int64_t each : cached) {
    taken.push_back(halves.room_for(each));
    if (taken.back() >= 0) halves.put(taken.back(), each);
  }
  size_t kept = prompts.size();
  while (kept > 0 && halves.drop(work_of(prompts[kept - 1]), tokens)) --kept;
  return py::make_tuple(taken, kept, py::make_tuple(halves.hiding(0), halves.hiding(1)),
                        py::make_tuple(halves.host(0), halves.host(1)));
}

// Factors after passes of kind, work of both halves, and (seconds, accelerator, host, link) as measured.
using Pass = std::tuple<std::string, py::object, py::object, std::array<double, 4>>;

std::array<double, 4> corrections(const py::object& cost_object, const std::vector<Pass>& passes) {
  const Cost cost = cost_of(cost_object);
  Correction correction;
  for (const auto& [kind, first, second, took] : passes)
    correction.observe(kind_of(kind), {{work_of(first), work_of(second)}, {}}, cost,
                       {took[0], took[1], took[2], took[3]});
  return correction.factors();
}

}  // namespace

void register_rules(py::module_& module) {
  const auto rates = [](auto rule) {
    return [rule](double linear, double attention, double gpu_rate, double cpu_rate) {
      return rule(decoding(linear, attention, gpu_rate, cpu_rate));
    };
  };
  module.def("pipelining_pays", rates(pipelining_pays), py::arg("linear"), py::arg("attention"), py::arg("gpu_rate"),
             py::arg("cpu_rate"));
  module.def("below_ratio", rates(below_ratio), py::arg("linear"), py::arg("attention"), py::arg("gpu_rate"),
             py::arg("cpu_rate"));
  module.def(
      "mixed_pays",
      [](double linear, double attention, double gpu_rate, double cpu_rate, double prompt_linear,
         double prompt_attention, bool printed) {
        return mixed_pays(decoding(linear, attention, gpu_rate, cpu_rate), prompt_linear, prompt_attention, printed);
      },
      py::arg("linear"), py::arg("attention"), py::arg("gpu_rate"), py::arg("cpu_rate"), py::arg("prompt_linear"),
      py::arg("prompt_attention"), py::arg("printed"));
  module.def("fill_halves", &fill_halves, py::arg("cost"), py::arg("first"), py::arg("cached"), py::arg("prompts"),
             py::arg("tokens"), py::arg("share") = 1.0);
  module.def("corrections", &corrections, py::arg("cost"), py::arg("passes"));
}

}  // namespace helm::scheduling
