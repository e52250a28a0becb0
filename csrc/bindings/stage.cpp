#include "../stage.h"

#include "../shape.h"
#include "stage_spec.h"

namespace helm {
namespace {

// A Stage with everything it points to.
class BoundStage {
 public:
  BoundStage(std::shared_ptr<Pool> pool, const py::dict& spec, const Buffer& workspace, long long first_layer)
      : BoundStage(std::move(pool), parse_spec(spec), workspace, count_of("first_layer", first_layer, 0)) {}

  BoundStage(std::shared_ptr<Pool> pool, ParsedSpec parsed, const Buffer& workspace, size_t first_layer)
      : pool_(std::move(pool)), parsed_(std::move(parsed)), workspace_(workspace) {
    expect_size("workspace", workspace_, Stage::workspace_size(parsed_.spec));
    stage_ = std::make_unique<Stage>(*pool_, parsed_.spec, workspace_.data, first_layer);
  }

  const std::vector<std::string>& ops() const { return stage_->ops(); }

  void run(const Buffer& source, const Buffer& target, long long tokens, long long past, const py::buffer& stamps) {
    const StageSpec& s = parsed_.spec;
    const size_t count = count_of("tokens", tokens), before = count_of("past", past, 0);
    check_positions(count, before);
    const size_t hidden = product({s.batch, count, s.hidden, sizeof(float)});
    expect_size("source", source, s.embedding ? s.batch * count * sizeof(int32_t) : hidden);
    expect_size("target", target, s.head ? s.batch * sizeof(int32_t) : hidden);
    if (s.embedding) check_ids(reinterpret_cast<const int32_t*>(source.data), s.batch * count);
    const View times("stamps", stamps, ops().size() + 1, sizeof(double), true);
    const py::gil_scoped_release release;
    stage_->run(source.data, target.data, count, before, static_cast<double*>(times.data()));
  }

  // (data, rows, columns) of the logits.
  py::buffer_info logits() {
    const StageSpec& s = parsed_.spec;
    if (!s.head) throw py::value_error("a stage without a head has no logits");
    const auto batch = static_cast<py::ssize_t>(s.batch), vocab = static_cast<py::ssize_t>(s.vocab);
    const auto width = static_cast<py::ssize_t>(sizeof(float));
    return py::buffer_info(const_cast<float*>(stage_->logits()), width, py::format_descriptor<float>::format(), 2,
                           {batch, vocab}, {vocab * width, width});
  }

 private:
  void check_positions(size_t tokens, size_t past) const {
    const StageSpec& s = parsed_.spec;
    if (tokens > s.max_tokens)
      throw py::value_error("tokens (" + std::to_string(tokens) + ") exceed max_tokens (" +
                            std::to_string(s.max_tokens) + ")");
    if (past + tokens > s.attention.capacity)
      throw py::value_error("past + tokens (" + std::to_string(past + tokens) + ") exceed the capacity (" +
                            std::to_string(s.attention.capacity) + ")");
  }

  void check_ids(const int32_t* ids, size_t count) const {
    for (size_t i = 0; i < count; ++i)
      if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= parsed_.spec.vocab)
        throw py::value_error("token id " + std::to_string(ids[i]) + " is outside the vocabulary of " +
                              std::to_string(parsed_.spec.vocab));
  }

  std::shared_ptr<Pool> pool_;
  ParsedSpec parsed_;
  Buffer workspace_;
  std::unique_ptr<Stage> stage_;
};

// What `logits()` hands to memoryview: keeps its stage alive.
struct Logits {
  std::shared_ptr<BoundStage> stage;
};

}  // namespace

void register_stage(py::module_& module) {
  py::class_<Logits>(module, "_Logits", py::buffer_protocol()).def_buffer([](Logits& l) { return l.stage->logits(); });
  py::class_<BoundStage, std::shared_ptr<BoundStage>>(module, "Stage")
      .def(py::init<std::shared_ptr<Pool>, const py::dict&, const Buffer&, long long>(), py::arg("pool"),
           py::arg("spec"), py::arg("workspace"), py::arg("first_layer"))
      .def_static(
          "workspace_size", [](const py::dict& spec) { return Stage::workspace_size(parse_spec(spec).spec); },
          py::arg("spec"))
      .def_property_readonly("ops", &BoundStage::ops)
      .def("run", &BoundStage::run, py::arg("source"), py::arg("target"), py::arg("tokens"), py::arg("past"),
           py::arg("stamps"))
      .def("logits", [](const std::shared_ptr<BoundStage>& stage) {
        stage->logits();  // refuses now rather than inside the buffer protocol
        return py::memoryview(py::cast(Logits{stage}));
      });
}

}  // namespace helm
