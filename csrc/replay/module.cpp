// The Python module `helmsman.simulator._replay`; its contract is simulator/_replay.pyi.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "loop.h"

namespace py = pybind11;

PYBIND11_MODULE(_replay, module) {
  using helm::Loop;
  module.doc() = "The event loop of a replay.";
  py::class_<Loop>(module, "Loop")
      .def(py::init<std::vector<double>, bool>(), py::arg("capacity"), py::arg("record"))
      .def("add_lane", &Loop::add_lane, py::arg("kind"))
      .def("add_uses", &Loop::add_uses, py::arg("uses"))
      .def("add_slowings", &Loop::add_slowings, py::arg("slows"), py::arg("interrupts"))
      .def("add_traffic", &Loop::add_traffic, py::arg("kinds"))
      .def("feed", &Loop::feed, py::arg("lanes"), py::arg("seconds"), py::arg("rates"), py::arg("uses"),
           py::arg("traffic"), py::arg("slowings"), py::arg("gaps"), py::arg("dep_counts"), py::arg("deps"),
           py::arg("handovers"))
      .def(
          "run", [](Loop& loop, long long unfinished) { loop.run(static_cast<size_t>(unfinished)); },
          py::arg("unfinished"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("unfinished", &Loop::unfinished)
      .def_property_readonly("now", &Loop::now)
      .def_property_readonly("overlap", &Loop::overlap)
      .def_property_readonly("busy", &Loop::busy)
      .def_property_readonly("masks", &Loop::masks)
      .def("finished", [](Loop& loop) {
        helm::Finished found = loop.finished();
        return py::make_tuple(found.index, found.start, found.end);
      });
  module.def(
      "fair_speeds",
      [](const std::vector<double>& rates, const std::vector<helm::Uses>& uses, const std::vector<double>& capacity) {
        std::vector<const helm::Uses*> pointers;
        for (const helm::Uses& each : uses) pointers.push_back(&each);
        return helm::fair_speeds(rates, pointers, capacity);
      },
      py::arg("rates"), py::arg("uses"), py::arg("capacity"));
}
