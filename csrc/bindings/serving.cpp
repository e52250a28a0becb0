// Ragged, Cohort and ServingPass.
#include "serving/serving.h"

#include "serving/cohort.h"
#include "serving/serving_weights.h"
#include "formats/shape.h"
#include "bindings/counts.h"

namespace helm {
namespace {

std::shared_ptr<Ragged> ragged(const py::buffer& positions, const py::buffer& sequences, const py::buffer& runs,
                               const py::buffer& outputs, const std::optional<py::buffer>& slots) {
  const Counts s("sequences", sequences, 5), r("runs", runs, 3);
  const std::vector<size_t> own = slots ? Counts("slots", *slots, 1).plain() : std::vector<size_t>{};
  if (slots && own.size() != s.size()) throw py::value_error("slots must be as many as sequences");
  return std::make_shared<Ragged>(
      Counts("positions", positions, 1).plain(), s.all<RaggedSequence>([&](size_t i) {
        return RaggedSequence{s.at(i, 0), s.at(i, 1), s.at(i, 2), s.at(i, 3), s.at(i, 4), slots ? own[i] : 0};
      }),
      r.all<CacheRun>([&](size_t i) { return CacheRun{r.at(i, 0), r.at(i, 1), r.at(i, 2)}; }),
      Counts("outputs", outputs, 1).plain());
}

// By row, the row of caches; -1 for rows that are cached elsewhere.
std::vector<int64_t> cached(const Ragged& rows) {
  std::vector<int64_t> found;
  for (const size_t row : rows.cached) found.push_back(row == kNowhere ? -1 : static_cast<int64_t>(row));
  return found;
}

// (first, tokens, past, runs of positions) of every sequence.
py::list sequences(const Ragged& rows) {
  py::list found;
  for (const RaggedSequence& s : rows.sequences) {
    py::list runs;
    for (const CacheRun* run = rows.runs_of(s); run < rows.runs_of(s) + s.runs; ++run)
      runs.append(py::make_tuple(run->position, run->count, run->row));
    found.append(py::make_tuple(s.first, s.tokens, s.past, runs));
  }
  return found;
}

// By sequence, which of the states are its own.
std::vector<size_t> slots(const Ragged& rows) {
  std::vector<size_t> found;
  for (const RaggedSequence& s : rows.sequences) found.push_back(s.slot);
  return found;
}

// A Cohort with its stages; what it has under way ends before it does.
class BoundCohort {
 public:
  BoundCohort(const py::object& stage, const py::object& host, const Buffer& kept, long long rows, int rise)
      : stage_(stage_of(stage)), host_(stage_of(host)) {
    expect_size("kept", kept, Cohort::size(*stage_, count_of("rows", rows)));
    rows_ = static_cast<size_t>(rows);
    cohort_ = std::make_shared<Cohort>(Seat(*host_, workspace_of(host)), kept, *stage_, rise);
  }
  ~BoundCohort() {
    const py::gil_scoped_release release;
    cohort_->wait();
  }
  const std::shared_ptr<Cohort>& cohort() const { return cohort_; }
  size_t rows() const { return rows_; }
  const Stage& host() const { return *host_; }
  void wait() const { cohort_->wait(); }
  std::optional<size_t> layer() const {
    return cohort_->layer() == Cohort::kNone ? std::nullopt : std::optional(cohort_->layer());
  }

 private:
  std::shared_ptr<Stage> stage_, host_;
  size_t rows_;
  std::shared_ptr<Cohort> cohort_;
};

using Rows = std::shared_ptr<Ragged>;
using Batch = std::tuple<py::object, Rows, py::buffer, py::object, Rows>;  // stage, rows, ids, host stage, its rows
using Side = std::tuple<const Buffer*, long long, long long>;              // buffer, stride, layers
using Copies = std::optional<std::tuple<Side, Side, py::buffer>>;          // source, target, pieces
// Block, who looks up its experts, what is signalled when those that others compute have joined.
using Lookups = std::vector<std::tuple<long long, py::function, std::shared_ptr<Event>>>;
using JoiningArgs = std::tuple<std::shared_ptr<BoundCohort>, Rows, Rows, py::buffer, bool, bool>;
using Lanes = std::tuple<py::object, py::object, py::object, py::object, py::object, py::object>;

// What an iteration works with, kept alive; it ends before this does.
class BoundPass {
 public:
  BoundPass(const Lanes& lanes, long long layers, const std::vector<Batch>& batches, const Copies& swap_out,
            const Copies& swap_in, const Copies& fetch, const Copies& store, const std::vector<JoiningArgs>& joining,
            const std::shared_ptr<StreamedWeights>& weights, const Lookups& lookups)
      : lookups_(lookups) {
    ServingIteration it;
    for (const auto& [block, ask, joined] : lookups_)
      it.lookups.push_back({count_of("block", block, 0), asking(ask), joined});
    it.weights = weights;
    it.layers = count_of("layers", layers);
    if (batches.empty() || batches.size() > 2) throw py::value_error("an iteration has one or two sub-batches");
    for (const Batch& each : batches) add(it, each);
    it.swap_out = copies(swap_out), it.swap_in = copies(swap_in), it.fetch = copies(fetch), it.store = copies(store);
    for (const JoiningArgs& each : joining) it.joining.push_back(join(each, it));
    joining_ = it.joining;
    const ServingLanes found = opened(lanes);
    const py::gil_scoped_release release;
    pass_.emplace(found, std::move(it));
  }
  ~BoundPass() {
    if (waited_ || !pass_) return;
    const py::gil_scoped_release release;
    try {
      pass_->wait();
    } catch (const std::exception&) {  // nobody asked
    }
  }

  void wait() {
    const py::gil_scoped_release release;
    waited_ = true;
    pass_->wait();
  }
  std::vector<bool> joined() const {
    std::vector<bool> found;
    for (const auto& each : joining_) found.push_back(each->joined);
    return found;
  }
  std::vector<int32_t> chosen() const { return pass_->chosen(); }
  py::dict seconds() const {
    const ServingSeconds s = pass_->seconds();
    return py::dict(py::arg("linear") = std::make_pair(s.linear[0], s.linear[1]), py::arg("ends") = s.ends,
                    py::arg("gpu_attention") = s.gpu_attention, py::arg("cpu_attention") = s.cpu_attention,
                    py::arg("to_host") = s.to_host, py::arg("to_device") = s.to_device,
                    py::arg("swap_out") = s.swap_out, py::arg("swap_in") = s.swap_in, py::arg("weights") = s.weights);
  }

 private:
  // Calls a function that this keeps, in turns of a queue whose thread has no GIL.
  static std::function<bool(size_t, size_t)> asking(const py::function& function) {
    return [called = function.ptr()](size_t batch, size_t rows) {
      const py::gil_scoped_acquire acquire;
      try {
        return py::handle(called)(batch, rows).cast<bool>();
      } catch (const py::error_already_set& error) {
        throw std::runtime_error(error.what());
      }
    };
  }

  Seat seat(const py::object& stage) {
    stages_.push_back(stage_of(stage));
    return {*stages_.back(), workspace_of(stage)};
  }

  void add(ServingIteration& it, const Batch& batch) {
    const auto& [stage, rows, ids, host, apart] = batch;
    if (!rows || (apart && (host.is_none() || apart->rows() > rows->rows())))
      throw py::value_error("a sub-batch has rows, and a host's stage for its last ones");
    const py::buffer_info info = ids.request();
    const View view("ids", ids, static_cast<size_t>(info.size), sizeof(int32_t), false);
    const auto* first = static_cast<const int32_t*>(view.data());
    it.ids[it.batches.size()].assign(first, first + info.size);
    it.batches.push_back({seat(stage), rows, host.is_none() ? Seat() : seat(host), apart});
  }

  static LayerSide side(const Side& side) {
    const auto& [buffer, stride, layers] = side;
    return {*buffer, count_of("stride", stride, 0), count_of("layers", layers)};
  }

  static LayerCopies copies(const Copies& given) {
    if (!given) return {};
    LayerCopies found{side(std::get<0>(*given)), side(std::get<1>(*given)), {}};
    const auto before = [](const LayerSide& side) { return product({side.stride, side.layers - 1}); };
    found.pieces = pieces_of(std::get<2>(*given), found.target.buffer, before(found.target), found.source.buffer,
                             before(found.source));
    return found;
  }

  std::shared_ptr<Joining> join(const JoiningArgs& given, const ServingIteration& it) {
    const auto& [bound, joint, apart, kept, waits, stays] = given;
    if (!bound || !joint || !apart || apart->rows() > joint->rows() || apart->rows() > bound->rows())
      throw py::value_error("a cohort has rows among those that join, and room for them");
    cohorts_.push_back(bound);
    const size_t layer = bound->cohort()->layer();
    std::vector<size_t> places = Counts("kept", kept, 1).plain();
    if (stays ? places.size() > apart->rows() : places.size() != (layer == Cohort::kNone ? 0 : apart->rows()))
      throw py::value_error("every row of a cohort that has begun must be one of those under way");
    if (stays && (layer == Cohort::kNone || it.batches.size() < 2 || it.batches[1].host.stage == nullptr))
      throw py::value_error("a cohort that has begun may stay in the second sub-batch");
    for (const size_t place : places)
      if (place >= bound->rows()) throw py::value_error("a cohort has no row " + std::to_string(place));
    const Stage& host = bound->host();
    host.check_ragged(*apart, apart->rows(), false, host.find("append", 0), host.find("o", 0));
    // Places among layers; the embedding's is 0.
    const auto before = [](size_t at) { return at + 1; };
    if (!it.joining.empty() && before(layer) < before(it.joining.back()->at) + (stays ? 0 : 1))
      throw py::value_error("cohorts join by layer, and of those that leave again only one at a layer");
    auto made = std::make_shared<Joining>();
    made->cohort = bound->cohort(), made->joint = joint, made->apart = apart;
    made->kept = std::move(places), made->at = layer, made->waits = waits || stays, made->stays = stays;
    return made;
  }

  ServingLanes opened(const Lanes& lanes) {
    const auto& [accelerator, host, to_host, to_device, queries, outputs] = lanes;
    const auto queue = [this](const py::object& each) { return keep(queues_, each, queue_of); };
    const auto engine = [this](const py::object& each) { return keep(engines_, each, engine_of); };
    if (accelerator.is_none()) throw py::value_error("an iteration needs the accelerator's queue");
    return {queue(accelerator), queue(host), engine(to_host), engine(to_device), engine(queries), engine(outputs)};
  }

  template <class T, class Open>
  static T* keep(std::vector<std::shared_ptr<T>>& kept, const py::object& each, Open open) {
    if (each.is_none()) return nullptr;
    kept.push_back(open(each));
    return kept.back().get();
  }

  Lookups lookups_;
  std::vector<std::shared_ptr<Stage>> stages_;
  std::vector<std::shared_ptr<Queue>> queues_;
  std::vector<std::shared_ptr<CopyEngine>> engines_;
  std::vector<std::shared_ptr<BoundCohort>> cohorts_;
  std::vector<std::shared_ptr<Joining>> joining_;
  std::optional<ServingPass> pass_;
  bool waited_ = false;
};

}  // namespace

void register_serving(py::module_& module) {
  py::class_<Ragged, std::shared_ptr<Ragged>>(module, "Ragged")
      .def(py::init(&ragged), py::arg("positions"), py::arg("sequences"), py::arg("runs"), py::arg("outputs"),
           py::arg("slots") = py::none())
      .def_property_readonly("rows", &Ragged::rows)
      .def_readonly("positions", &Ragged::positions)
      .def_readonly("outputs", &Ragged::outputs)
      .def_property_readonly("cached", &cached)
      .def_property_readonly("sequences", &sequences)
      .def_property_readonly("slots", &slots);
  py::class_<BoundCohort, std::shared_ptr<BoundCohort>>(module, "Cohort")
      .def(py::init<const py::object&, const py::object&, const Buffer&, long long, int>(), py::arg("stage"),
           py::arg("host"), py::arg("kept"), py::arg("rows"), py::arg("rise") = 0)
      .def_static(
          "size",
          [](const py::object& stage, long long rows) {
            return Cohort::size(*stage_of(stage), count_of("rows", rows));
          },
          py::arg("stage"), py::arg("rows"))
      .def_property_readonly("layer", &BoundCohort::layer)
      .def_property_readonly("landed", [](const BoundCohort& each) { return each.cohort()->landed(); })
      .def("wait", &BoundCohort::wait, py::call_guard<py::gil_scoped_release>())
      .def("reset", [](const BoundCohort& each) { each.cohort()->reset(); });
  py::class_<BoundPass>(module, "ServingPass")
      .def(py::init<const Lanes&, long long, const std::vector<Batch>&, const Copies&, const Copies&, const Copies&,
                    const Copies&, const std::vector<JoiningArgs>&, const std::shared_ptr<StreamedWeights>&,
                    const Lookups&>(),
           py::arg("lanes"), py::arg("layers"), py::arg("batches"), py::arg("swap_out") = py::none(),
           py::arg("swap_in") = py::none(), py::arg("fetch") = py::none(), py::arg("store") = py::none(),
           py::arg("joining") = py::list(), py::arg("weights") = py::none(), py::arg("lookups") = py::list())
      .def("wait", &BoundPass::wait)
      .def("chosen", &BoundPass::chosen)
      .def("seconds", &BoundPass::seconds)
      .def_property_readonly("joined", &BoundPass::joined);
}

}  // namespace helm
