// The Python module `helmsman.timing._clock`; its contract is timing/_clock.pyi.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string_view>

#include "timing/loop.h"
#include "timing/sequence.h"
#include "timing/turns.h"

namespace py = pybind11;

static_assert(std::string_view(PYBIND11_PLATFORM_ABI_ID).find("helmsman_clock") != std::string_view::npos,
              "pybind11 is the module's own");

namespace {

// The integers of an array of the standard library; throws std::invalid_argument for one of another type.
template <class Int>
std::pair<const Int*, size_t> integers(const py::buffer_info& info) {
  if (info.ndim != 1 || !info.item_type_is_equivalent_to<Int>())
    throw std::invalid_argument("an array of another type");
  return {static_cast<const Int*>(info.ptr), static_cast<size_t>(info.size)};
}

// A task as Python has it: lane, seconds, join, own, before, buffered.
using Told = std::tuple<int, double, double, helm::Awaited, helm::Awaited, bool>;

helm::TimedTasks tasks_of(const std::vector<Told>& told) {
  helm::TimedTasks tasks;
  tasks.reserve(told.size());
  for (const auto& [lane, seconds, join, own, before, buffered] : told)
    tasks.push_back({lane, seconds, join, own, before, buffered});
  return tasks;
}

std::vector<helm::TimedTasks> by_batch(const std::vector<std::vector<Told>>& told) {
  std::vector<helm::TimedTasks> tasks;
  for (const auto& batch : told) tasks.push_back(tasks_of(batch));
  return tasks;
}

}  // namespace

PYBIND11_MODULE(_clock, module) {
  using helm::Loop;
  module.doc() = "The clock: its event loop, and stages that take turns.";
  py::class_<Loop>(module, "Loop")
      .def(py::init<std::vector<double>, bool>(), py::arg("capacity"), py::arg("record"))
      .def("add_lane", &Loop::add_lane, py::arg("kind"), py::arg("join"))
      .def("set_handover", &Loop::set_handover, py::arg("source"), py::arg("target"), py::arg("seconds"))
      .def("add_uses", &Loop::add_uses, py::arg("uses"))
      .def("add_slowings", &Loop::add_slowings, py::arg("slows"), py::arg("interrupts"))
      .def("add_traffic", &Loop::add_traffic, py::arg("kinds"))
      .def(
          "add_work",
          [](Loop& loop, int lane, double seconds, double rate, int uses, int traffic, int slowings) {
            return loop.add_work({lane, seconds, rate, uses, traffic, slowings});
          },
          py::arg("lane"), py::arg("seconds"), py::arg("rate"), py::arg("uses"), py::arg("traffic"),
          py::arg("slowings"))
      .def(
          "feed",
          [](Loop& loop, const py::buffer& works, const py::buffer& dep_counts, const py::buffer& deps) {
            const py::buffer_info work_info = works.request(), count_info = dep_counts.request(),
                                  dep_info = deps.request();
            const auto [work, tasks] = integers<int32_t>(work_info);
            const auto [counts, counted] = integers<int32_t>(count_info);
            const auto [dep, total] = integers<int64_t>(dep_info);
            if (tasks != counted) throw std::invalid_argument("lists of different lengths");
            loop.feed(work, counts, tasks, dep, total);
          },
          py::arg("works"), py::arg("dep_counts"), py::arg("deps"))
      .def(
          "run", [](Loop& loop, long long unfinished) { loop.run(static_cast<size_t>(unfinished)); },
          py::arg("unfinished"), py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("unfinished", &Loop::unfinished)
      .def_property_readonly("now", &Loop::now)
      .def_property_readonly("overlap", &Loop::overlap)
      .def_property_readonly("busy", &Loop::busy)
      .def_property_readonly("masks", &Loop::masks)
      .def("finished", [](Loop& loop) {
        helm::Finished done = loop.finished();
        return py::make_tuple(done.index, done.start, done.end);
      });
  module.def(
      "fair_speeds",
      [](const std::vector<double>& rates, const std::vector<helm::Uses>& uses, const std::vector<double>& capacity) {
        if (rates.size() != uses.size()) throw std::invalid_argument("lists of different lengths");
        for (const helm::Uses& use : uses)
          for (const auto& [pool, times] : use)
            if (pool < 0 || static_cast<size_t>(pool) >= capacity.size() || times < 1)
              throw std::invalid_argument("no such pool");
        std::vector<const helm::Uses*> pointers;
        for (const helm::Uses& use : uses) pointers.push_back(&use);
        return helm::fair_speeds(rates, pointers, capacity);
      },
      py::arg("rates"), py::arg("uses"), py::arg("capacity"));
  module.def(
      "sequence_seconds",
      [](const py::buffer& kinds, const std::vector<double>& seconds, const py::buffer& waits,
         const std::vector<double>& joins, const std::vector<double>& handovers) {
        const py::buffer_info kind_info = kinds.request(), wait_info = waits.request();
        const auto [kind, tasks] = integers<int32_t>(kind_info);
        const auto [wait, size] = integers<int64_t>(wait_info);
        return helm::sequence_seconds(kind, tasks, seconds, wait, size, joins, handovers);
      },
      py::arg("kinds"), py::arg("seconds"), py::arg("waits"), py::arg("joins"), py::arg("handovers"));
  using helm::TurnStage;
  py::class_<TurnStage, std::shared_ptr<TurnStage>>(module, "TurnStage")
      .def(py::init([](const std::vector<std::vector<Told>>& head, const std::vector<std::vector<Told>>& tail,
                       const std::vector<Told>& last, std::vector<int> outputs, std::vector<int> users, int to,
                       double launching) {
             return TurnStage{by_batch(head), by_batch(tail), tasks_of(last), std::move(outputs), std::move(users), to,
                              launching};
           }),
           py::arg("head"), py::arg("tail"), py::arg("last"), py::arg("outputs"), py::arg("users"), py::arg("to"),
           py::arg("launching"));
  module.def("followed", &helm::followed, py::arg("stages"), py::arg("buffers"), py::arg("lanes"));
}
