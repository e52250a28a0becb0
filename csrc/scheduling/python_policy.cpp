#include "scheduling/python_policy.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "scheduling/convert.h"

namespace py = pybind11;

namespace helm::scheduling {
namespace {

Home home_of(const std::string& name) {
  if (name == "gpu") return Home::gpu;
  if (name == "cpu") return Home::cpu;
  throw std::invalid_argument("a home is gpu or cpu, not " + name);
}

// A state for as long as one decide runs, and requests by number, checked.
struct View {
  State* state = nullptr;

  State& open() const {
    if (state == nullptr) throw std::logic_error("the pass of this state has been made");
    return *state;
  }

  State& of(Id id) const {
    State& state = open();
    if (id < 0 || !state.lives(id)) throw std::logic_error("no request " + std::to_string(id));
    return state;
  }
};

std::vector<Id> by_number(std::vector<Id> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<Id> numbers(const std::set<Rank>& ranks) {
  std::vector<Id> ids;
  for (const Rank& rank : ranks) ids.push_back(rank.second);
  return ids;
}

// Objects of Python are touched with the interpreter's lock alone, which whoever simulates has given up.
class PythonPolicy final : public Policy {
 public:
  PythonPolicy(py::object policy, Homes homes) : policy_(std::move(policy)), homes_(homes) {}
  ~PythonPolicy() override {
    const py::gil_scoped_acquire locked;
    policy_ = py::object();
  }

  Homes homes() const override { return homes_; }
  bool learns() const override { return false; }

  void decide(State& state, const Cost&) override {
    const py::gil_scoped_acquire locked;
    const py::object view = py::cast(View{&state});
    try {
      policy_.attr("decide")(view);
    } catch (...) {
      view.cast<View&>().state = nullptr;
      throw;
    }
    view.cast<View&>().state = nullptr;
    if (state.decision().idle() && state.running() > 0)
      throw std::logic_error("requests run, and none of them goes on");
  }

 private:
  py::object policy_;
  Homes homes_;
};

}  // namespace

PolicyMaker policy_maker_of(const py::object& policy, const py::dict& options) {
  if (py::isinstance<py::str>(policy)) {
    return [name = policy.cast<std::string>(), values = options_of(options)] { return make_policy(name, values); };
  }
  Homes homes{false, false};
  for (const py::handle home : policy.attr("homes")) {
    (home_of(home.cast<std::string>()) == Home::gpu ? homes.gpu : homes.cpu) = true;
  }
  if (!homes.gpu && !homes.cpu) throw std::invalid_argument("a policy has a home for caches, or both");
  // References are not counted without the lock.
  const std::shared_ptr<py::object> make(new py::object(policy.attr("make")), [](py::object* kept) {
    const py::gil_scoped_acquire locked;
    delete kept;
  });
  return [make, homes]() -> std::unique_ptr<Policy> {
    const py::gil_scoped_acquire locked;
    return std::make_unique<PythonPolicy>((*make)(), homes);
  };
}

void register_replica_state(py::module_& module) {
  const auto read = [](auto get) { return [get](const View& view) { return get(view.open()); }; };
  const auto of_request = [](auto get) { return [get](const View& view, Id id) { return get(view.of(id), id); }; };
  py::class_<View>(module, "ReplicaState")
      .def_property_readonly("waiting", read([](const State& s) { return numbers(s.waiting()); }))
      .def_property_readonly("prompting", read([](const State& s) { return s.prompting(); }))
      .def_property_readonly("on_gpu", read([](const State& s) { return by_number(s.gpu().members()); }))
      .def_property_readonly("on_cpu", read([](const State& s) { return s.cpu(); }))
      .def_property_readonly("swapped", read([](const State& s) { return numbers(s.swapped()); }))
      .def_property_readonly("running", read([](const State& s) { return s.running(); }))
      .def_property_readonly("sequences", read([](const State& s) { return s.limits().sequences; }))
      .def_property_readonly("budget", read([](const State& s) { return s.limits().budget(); }))
      .def_property_readonly("tokens",
                             read([](const State& s) { return s.load().half[0].tokens + s.load().half[1].tokens; }))
      .def(
          "free", [](const View& view, const std::string& home) { return view.open().free(home_of(home)); },
          py::arg("home"))
      .def("growth", read([](const State& s) { return s.gpu().growth(1); }))
      .def("priority", of_request([](const State& s, Id id) { return s.sequence(id).priority; }), py::arg("request"))
      .def("cached", of_request([](const State& s, Id id) { return s.cached(id); }), py::arg("request"))
      .def("produced", of_request([](const State& s, Id id) { return s.produced(id); }), py::arg("request"))
      .def("moved_blocks", of_request([](const State& s, Id id) { return s.moved_blocks(id); }), py::arg("request"))
      .def(
          "prompt_left",
          [](const View& view, Id id, const std::string& home) { return view.of(id).prompt_left(id, home_of(home)); },
          py::arg("request"), py::arg("home"))
      .def(
          "prompt_part",
          [](const View& view, Id id, const std::string& home) { return view.of(id).prompt_part(id, home_of(home)); },
          py::arg("request"), py::arg("home"))
      .def(
          "prompt_blocks",
          [](const View& view, Id id, int64_t count, const std::string& home) {
            return view.of(id).prompt_blocks(id, count, home_of(home));
          },
          py::arg("request"), py::arg("count"), py::arg("home"))
      .def("preempt", of_request([](State& s, Id id) { s.preempt(id); }), py::arg("request"))
      .def(
          "swap_out", [](const View& view, Id id, bool pause) { view.of(id).swap_out(id, pause); }, py::arg("request"),
          py::arg("pause"))
      .def("swap_in", of_request([](State& s, Id id) { s.swap_in(id); }), py::arg("request"))
      .def("decode_on_gpu", [](const View& view) { view.open().decode_on_gpu(); })
      .def(
          "prompt",
          [](const View& view, Id id, int64_t count, const std::string& home) {
            view.of(id).prompt(id, count, home_of(home));
          },
          py::arg("request"), py::arg("count"), py::arg("home"))
      .def(
          "decode_on_cpu",
          [](const View& view, Id id, int half) {
            if (half != 0 && half != 1) throw std::logic_error("a sub-batch is 0 or 1");
            view.of(id).decode_on_cpu(id, half);
          },
          py::arg("request"), py::arg("half"))
      .def(
          "kind",
          [](const View& view, const std::string& name) {
            if (name == "deferred") throw std::logic_error("policies in Python form no cohorts");
            view.open().set_kind(kind_of(name));
          },
          py::arg("kind"));
}

}  // namespace helm::scheduling
