// Routers and networks that they choose, for tests and measurements of these kernels alone.
#include "kernels/experts/experts.h"

#include <limits>
#include <stdexcept>

#include "bindings/bindings.h"
#include "formats/shape.h"
#include "kernels/experts/router.h"
#include "kernels/isa.h"
#include "runtime/clock.h"

namespace helm {

Activation activation_of(const std::string& name) {
  if (name == "silu") return Activation::silu;
  if (name == "relu") return Activation::relu;
  if (name == "gelu") return Activation::gelu;
  if (name == "gelu_tanh") return Activation::gelu_tanh;
  if (name == "relu2") return Activation::relu2;
  if (name == "swiglu_oai") return Activation::swiglu_oai;
  throw py::value_error("activation must be silu, relu, gelu, gelu_tanh, relu2 or swiglu_oai");
}

namespace {

RouterScore score_of(const std::string& name) {
  if (name == "softmax") return RouterScore::softmax;
  if (name == "sigmoid") return RouterScore::sigmoid;
  if (name == "sqrt-softplus") return RouterScore::sqrt_softplus;
  if (name == "none") return RouterScore::none;
  throw py::value_error("score must be softmax, sigmoid, sqrt-softplus or none");
}

RouterWeights router_weights_of(const std::string& name) {
  if (name == "scores") return RouterWeights::scores;
  if (name == "softmax-of-chosen") return RouterWeights::softmax_of_chosen;
  throw py::value_error("weighted must be scores or softmax-of-chosen");
}

// An optional array of numbers, kept alive.
struct OptionalFloats {
  OptionalFloats(const char* what, const py::object& source, size_t count) {
    if (source.is_none()) return;
    view = std::make_unique<View>(what, source.cast<py::buffer>(), count, sizeof(float), false);
    data = static_cast<const float*>(view->data());
  }
  std::unique_ptr<View> view;
  const float* data = nullptr;
};

void route_checked(Pool& pool, const py::buffer& logits, const py::buffer& ids, const py::buffer& weights,
                   long long rows, long long experts, long long chosen, const std::string& score,
                   const std::string& weighted, const py::object& correction, long long groups, long long kept,
                   bool best_two, bool normalised, float eps, float scaling, const py::object& expert_scale) {
  RouterSpec router{};
  router.experts = count_of("experts", experts), router.chosen = count_of("chosen", chosen);
  router.score = score_of(score), router.weights = router_weights_of(weighted);
  router.groups = count_of("groups", groups, 0), router.kept = count_of("kept", kept, 0), router.best_two = best_two;
  router.normalised = normalised, router.eps = eps, router.scaling = scaling;
  check(router);
  const OptionalFloats added("correction", correction, router.experts);
  const OptionalFloats scales("expert_scale", expert_scale, router.experts);
  router.correction = added.data, router.expert_scale = scales.data;
  const size_t n = count_of("rows", rows);
  const View from("logits", logits, product({n, router.experts}), sizeof(float), false);
  const View to_ids("ids", ids, product({n, router.chosen}), sizeof(int32_t), true);
  const View to_weights("weights", weights, product({n, router.chosen}), sizeof(float), true);
  const py::gil_scoped_release release;
  pool.reserve(router_scratch(router));
  auto work = [&](size_t thread) {
    route_share(kernels().mixers(), thread, pool.threads(), router, static_cast<const float*>(from.data()), n,
                static_cast<int32_t*>(to_ids.data()), static_cast<float*>(to_weights.data()), pool.scratch(thread));
  };
  pool.run(work);
}

using Buffers = std::vector<const Buffer*>;

// One matrix of all experts. None in place of an expert: no row chooses it.
class BoundMatrix {
 public:
  BoundMatrix(const char* what, const Buffers& buffers, const std::string& format, size_t rows, size_t columns,
              const py::object& bias)
      : floats_(what, bias, product({buffers.size(), rows})) {
    for (const Buffer* buffer : buffers) {
      if (buffer != nullptr)
        matrix_of(what, *buffer, format, static_cast<long long>(rows), static_cast<long long>(columns));
      weights_.push_back(buffer == nullptr ? nullptr : buffer->data);
    }
    matrix_ = {weights_.data(), stored_format_of(format), rows, columns, floats_.data};
  }
  const ExpertMatrix& matrix() const { return matrix_; }

  // Throws ValueError where expert `id` has no weights.
  void expect(size_t id) const {
    if (weights_[id] == nullptr) throw py::value_error("expert " + std::to_string(id) + " is chosen, but not there");
  }

 private:
  OptionalFloats floats_;
  std::vector<const void*> weights_;
  ExpertMatrix matrix_;
};

// The layer of a call.
struct BoundLayer {
  BoundLayer(const Buffers& gate, const Buffers& up, const Buffers& down, const std::string& format,
             const std::string& down_format, long long hidden, long long width, const std::string& activation,
             float limit, const std::vector<py::object>& biases, bool input_scaled, const std::string& activations) {
    if (up.empty() || down.size() != up.size() || (!gate.empty() && gate.size() != up.size()))
      throw py::value_error("gate (unless empty), up and down must have a matrix for every expert");
    if (biases.size() != 3) throw py::value_error("biases are those of gate, up and down, or None");
    const size_t outer = count_of("hidden", hidden), inner = count_of("width", width);
    if (!gate.empty()) matrices.push_back(std::make_unique<BoundMatrix>("gate", gate, format, inner, outer, biases[0]));
    matrices.push_back(std::make_unique<BoundMatrix>("up", up, format, inner, outer, biases[1]));
    matrices.push_back(std::make_unique<BoundMatrix>("down", down, down_format, outer, inner, biases[2]));
    layer.experts = up.size();
    if (!gate.empty()) layer.gate = matrices[0]->matrix();
    layer.up = matrices[matrices.size() - 2]->matrix(), layer.down = matrices.back()->matrix();
    layer.activation = activation_of(activation), layer.limit = limit, layer.input_scaled = input_scaled;
    layer.activations = activations_of(activations);
    check(layer);
  }

  // Throws ValueError where ids[rows][chosen] do not ascend or name an expert that is not there.
  void expect_ids(const int32_t* ids, size_t rows, size_t chosen) const {
    for (size_t i = 0; i < rows * chosen; ++i) {
      if (ids[i] >= static_cast<int32_t>(layer.experts))
        throw py::value_error("ids must be below the number of experts");
      if (ids[i] < 0) continue;
      if (i % chosen > 0 && ids[i] <= ids[i - 1]) throw py::value_error("ids of a row must ascend");
      for (const auto& matrix : matrices) matrix->expect(static_cast<size_t>(ids[i]));
    }
  }

  std::vector<std::unique_ptr<BoundMatrix>> matrices;
  ExpertLayer layer;
};

constexpr size_t kFloatsOfLine = 16;

// One pass after the other over choices[passes][tokens][chosen]; the seconds of each.
std::vector<double> run_experts(Pool& pool, const Buffers& gate, const Buffers& up, const Buffers& down,
                                const std::string& format, const std::string& down_format, long long hidden,
                                long long width, const py::buffer& ids, const py::buffer& weights, const py::buffer& x,
                                const py::buffer& y, long long tokens, long long chosen, const std::string& activation,
                                float limit, const std::vector<py::object>& biases, bool input_scaled,
                                const std::string& activations, bool accumulate, long long passes) {
  const BoundLayer bound(gate, up, down, format, down_format, hidden, width, activation, limit, biases, input_scaled,
                         activations);
  const ExpertLayer& layer = bound.layer;
  const size_t n = count_of("tokens", tokens), k = count_of("chosen", chosen), times = count_of("passes", passes);
  const View indices("ids", ids, product({times, n, k}), sizeof(int32_t), false);
  const View factors("weights", weights, product({times, n, k}), sizeof(float), false);
  const View input("x", x, product({n, layer.up.columns}), sizeof(float), false);
  const View output("y", y, product({n, layer.down.rows}), sizeof(float), true);
  const auto* chosen_ids = static_cast<const int32_t*>(indices.data());
  bound.expect_ids(chosen_ids, times * n, k);
  const py::gil_scoped_release release;
  std::vector<float> room(experts_workspace(layer, k, n) + kFloatsOfLine);
  void* aligned = room.data();
  size_t space = room.size() * sizeof(float);
  auto* workspace = static_cast<float*>(std::align(64, space - 64, aligned, space));
  pool.reserve(experts_scratch(layer));
  std::vector<double> seconds(times);
  auto work = [&](size_t thread) {
    for (size_t pass = 0; pass < times; ++pass) {
      const ExpertChoice choice{chosen_ids + pass * n * k, static_cast<const float*>(factors.data()) + pass * n * k, k};
      const double begin = now();
      experts_by_all(kernels(), pool, thread, layer, choice, {static_cast<const float*>(input.data())},
                     static_cast<float*>(output.data()), n, accumulate, workspace);
      pool.barrier();
      if (thread == 0) seconds[pass] = now() - begin;
    }
  };
  pool.run(work);
  return seconds;
}

}  // namespace

void register_experts(py::module_& module) {
  module.def("route", &route_checked, py::arg("pool"), py::arg("logits"), py::arg("ids"), py::arg("weights"),
             py::arg("rows"), py::arg("experts"), py::arg("chosen"), py::arg("score") = "softmax",
             py::arg("weighted") = "scores", py::arg("correction") = py::none(), py::arg("groups") = 0,
             py::arg("kept") = 0, py::arg("best_two") = true, py::arg("normalised") = true, py::arg("eps") = 0.0f,
             py::arg("scaling") = 1.0f, py::arg("expert_scale") = py::none());
  module.def("experts", &run_experts, py::arg("pool"), py::arg("gate"), py::arg("up"), py::arg("down"), py::arg("fmt"),
             py::arg("down_fmt"), py::arg("hidden"), py::arg("width"), py::arg("ids"), py::arg("weights"), py::arg("x"),
             py::arg("y"), py::arg("tokens"), py::arg("chosen"), py::arg("activation") = "silu",
             py::arg("limit") = std::numeric_limits<float>::infinity(),
             py::arg("biases") = std::vector<py::object>{py::none(), py::none(), py::none()},
             py::arg("input_scaled") = false, py::arg("activations") = "int16", py::arg("accumulate") = false,
             py::arg("passes") = 1);
}

}  // namespace helm
