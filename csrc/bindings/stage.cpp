#include "stage/stage.h"

#include "formats/shape.h"
#include "bindings/spans.h"
#include "bindings/stage_spec.h"

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
    stage_ = std::make_unique<Stage>(*pool_, std::move(parsed_.spec), workspace_.data, first_layer);
  }

  const std::vector<std::string>& ops() const { return stage_->ops(); }
  Stage& stage() { return *stage_; }
  const Buffer& workspace() const { return workspace_; }

  // Bytes of each region, by name: offset in the workspace, of one row, from row to row.
  py::dict regions() const {
    py::dict found;
    for (const auto& [name, region] : stage_->regions())
      found[py::str(name)] = py::dict(py::arg("offset") = region.offset, py::arg("row_bytes") = region.row_bytes,
                                      py::arg("stride") = region.stride);
    return found;
  }

  // A pass to be run later, without the GIL, while this lives; only ids are checked when it runs. Destroy it
  // holding the GIL.
  std::function<void()> pass(const Buffer* source, const Buffer* target, long long tokens, long long past,
                             const std::shared_ptr<View>& times, Range range, long long start,
                             std::optional<long long> stop) {
    const size_t count = count_of("tokens", tokens), before = count_of("past", past, 0);
    const auto [begin, end] = range;
    const Range own = own_of(count, count_of("start", start, 0), stop ? count_of("stop", *stop) : count);
    stage_->check_range(source != nullptr, target != nullptr, own.end - own.begin, begin, end);
    check_positions(count, before, stage_->positions(begin, end));
    check_ends(source, target, count, begin, end);
    const Buffer from = source == nullptr ? Buffer{nullptr, nullptr, 0} : *source;
    const Buffer to = target == nullptr ? Buffer{nullptr, nullptr, 0} : *target;
    return [this, from, to, count, before, own, begin = begin, end = end, times] {
      if (stage_->embeds(begin)) check_ids(reinterpret_cast<const int32_t*>(from.data), stage_->spec().batch * count);
      stage_->run(from.data, to.data, count, before, own, begin, end, static_cast<double*>(times->data()));
    };
  }

  // Operations [first, last), all when not given. What there are of them is checked with a pass.
  Range range(long long first, std::optional<long long> last) const {
    return {count_of("first", first, 0), last ? count_of("last", *last, 0) : ops().size()};
  }

  static std::shared_ptr<View> stamps_of(const py::buffer& stamps, Range range) {
    const size_t count = range.end > range.begin ? range.end - range.begin + 1 : 1;
    return std::make_shared<View>("stamps", stamps, count, sizeof(double), true);
  }

  void run(const Buffer* source, const Buffer* target, long long tokens, long long past, const py::buffer& stamps,
           long long first, std::optional<long long> last, long long start, std::optional<long long> stop) {
    const Range all = range(first, last);
    const std::function<void()> work = pass(source, target, tokens, past, stamps_of(stamps, all), all, start, stop);
    const py::gil_scoped_release release;
    work();
  }

  // The same for Stage::attend; spans and what they point to live as long as the returned function.
  std::function<void()> attention(long long block, const std::vector<SpanArgs>& spans, bool first, bool last,
                                  long long tokens, long long past) {
    const size_t count = count_of("tokens", tokens), before = count_of("past", past, 0);
    const StageSpec& s = stage_->spec();
    const size_t which = count_of("block", block, 0);
    if (which >= s.blocks)
      throw py::value_error("there is no block " + std::to_string(block) + " among " + std::to_string(s.blocks));
    stage_->check_attend(which, count, before);
    const auto found = std::make_shared<BoundSpans>(*s.attention(which).attention(), s.batch, spans);
    return [this, which, found, first, last, count, before] {
      stage_->attend(which, found->spans(), first, last, count, before);
    };
  }

  // (data, rows, columns) of the logits.
  py::buffer_info logits() {
    const StageSpec& s = stage_->spec();
    if (!stage_->chooses(stage_->ops().size())) throw py::value_error("a stage without a head has no logits");
    const auto rows = static_cast<py::ssize_t>(outputs_of(s));
    const auto vocab = static_cast<py::ssize_t>(s.vocab);
    const auto width = static_cast<py::ssize_t>(sizeof(float));
    return py::buffer_info(const_cast<float*>(stage_->logits()), width, py::format_descriptor<float>::format(), 2,
                           {rows, vocab}, {vocab * width, width});
  }

 private:
  static Range own_of(size_t tokens, size_t start, size_t stop) {
    if (start >= stop || stop > tokens)
      throw py::value_error("there are no tokens [" + std::to_string(start) + ", " + std::to_string(stop) + ") among " +
                            std::to_string(tokens));
    return {start, stop};
  }

  void check_ends(const Buffer* source, const Buffer* target, size_t tokens, size_t first, size_t last) const {
    const StageSpec& s = stage_->spec();
    const size_t hidden = product({s.batch, tokens, s.hidden, sizeof(float)});
    const bool embeds = stage_->embeds(first);
    if (source != nullptr) expect_size("source", *source, embeds ? s.batch * tokens * sizeof(int32_t) : hidden);
    const size_t chosen = s.batch * std::min(s.last, tokens) * sizeof(int32_t);
    if (target != nullptr) expect_size("target", *target, stage_->chooses(last) ? chosen : hidden);
  }

  void check_positions(size_t tokens, size_t past, size_t limit) const {
    const StageSpec& s = stage_->spec();
    if (tokens > s.max_tokens)
      throw py::value_error("tokens (" + std::to_string(tokens) + ") exceed max_tokens (" +
                            std::to_string(s.max_tokens) + ")");
    if (past + tokens > limit)
      throw py::value_error("past + tokens (" + std::to_string(past + tokens) + ") exceed the capacity (" +
                            std::to_string(limit) + ")");
  }

  void check_ids(const int32_t* ids, size_t count) const {
    for (size_t i = 0; i < count; ++i)
      if (ids[i] < 0 || static_cast<size_t>(ids[i]) >= stage_->spec().vocab)
        throw py::value_error("token id " + std::to_string(ids[i]) + " is outside the vocabulary of " +
                              std::to_string(stage_->spec().vocab));
  }

  std::shared_ptr<Pool> pool_;
  ParsedSpec parsed_;
  Buffer workspace_;
  std::unique_ptr<Stage> stage_;
};

void attend_now(BoundStage& stage, long long block, const std::vector<SpanArgs>& spans, bool first, bool last,
                long long tokens, long long past) {
  const std::function<void()> work = stage.attention(block, spans, first, last, tokens, past);
  const py::gil_scoped_release release;
  work();
}

// What `logits()` hands to memoryview: keeps its stage alive.
struct Logits {
  std::shared_ptr<BoundStage> stage;
};

}  // namespace

PreparedPass stage_pass(const py::object& stage, const Buffer* source, const Buffer* target, const py::buffer& stamps,
                        long long first, std::optional<long long> last) {
  const auto bound = stage.cast<std::shared_ptr<BoundStage>>();
  const Range range = bound->range(first, last);
  const auto times = BoundStage::stamps_of(stamps, range);
  const auto copy = [](const Buffer* buffer) { return buffer == nullptr ? std::optional<Buffer>() : *buffer; };
  return [bound, from = copy(source), to = copy(target), times, range](long long tokens, long long past,
                                                                       long long start, std::optional<long long> stop) {
    auto work = bound->pass(from ? &*from : nullptr, to ? &*to : nullptr, tokens, past, times, range, start, stop);
    return [bound, work = std::move(work)] { work(); };
  };
}

std::function<void()> stage_attention(const py::object& stage, long long block, const std::vector<SpanArgs>& spans,
                                      bool first, bool last, long long tokens, long long past) {
  const auto bound = stage.cast<std::shared_ptr<BoundStage>>();
  return [bound, work = bound->attention(block, spans, first, last, tokens, past)] { work(); };
}

std::shared_ptr<Stage> stage_of(const py::object& stage) {
  const auto bound = stage.cast<std::shared_ptr<BoundStage>>();
  return {bound, &bound->stage()};
}

Buffer workspace_of(const py::object& stage) { return stage.cast<std::shared_ptr<BoundStage>>()->workspace(); }

void register_stage(py::module_& module) {
  py::class_<Logits>(module, "_Logits", py::buffer_protocol()).def_buffer([](Logits& l) { return l.stage->logits(); });
  py::class_<BoundStage, std::shared_ptr<BoundStage>>(module, "Stage")
      .def(py::init<std::shared_ptr<Pool>, const py::dict&, const Buffer&, long long>(), py::arg("pool"),
           py::arg("spec"), py::arg("workspace"), py::arg("first_layer"))
      .def_static(
          "workspace_size", [](const py::dict& spec) { return Stage::workspace_size(parse_spec(spec).spec); },
          py::arg("spec"))
      .def_property_readonly("ops", &BoundStage::ops)
      .def("regions", &BoundStage::regions)
      .def_property_readonly("workspace", &BoundStage::workspace)
      .def("run", &BoundStage::run, py::arg("source").none(true), py::arg("target").none(true), py::arg("tokens"),
           py::arg("past"), py::arg("stamps"), py::arg("first") = 0, py::arg("last") = py::none(), py::arg("start") = 0,
           py::arg("stop") = py::none())
      .def("attend", &attend_now, py::arg("block"), py::arg("spans"), py::arg("first"), py::arg("last"),
           py::arg("tokens"), py::arg("past"))
      .def("logits", [](const std::shared_ptr<BoundStage>& stage) {
        stage->logits();  // refuses now rather than inside the buffer protocol
        return py::memoryview(py::cast(Logits{stage}));
      });
}

}  // namespace helm
