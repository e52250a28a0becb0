// Submissions: what a pass hands to its queues and engines, prepared once. Making a submission from Python takes as
// long as a core needs for a small matrix, and it is a core that computes.
#include <pybind11/functional.h>

#include <algorithm>
#include <utility>

#include "runtime/copy_engine.h"
#include "bindings/bindings.h"

namespace helm {
namespace {

using Waits = std::vector<std::shared_ptr<Event>>;

// Tokens number x size, ... of a pass: `size` of them, or what is left.
struct Chunk {
  long long number, size;

  long long start() const { return number == 0 ? 0 : number * size; }
  long long stop(long long tokens) const { return size < tokens - start() ? start() + size : tokens; }
};

// counts[0] x counts[1] pieces of fixed + per_token x tokens + per_past x cached tokens bytes each;
// executor/devices/move_calls.py. `rows`: which count is per token, `pasts`: which is per cached token; `at_past`:
// bytes by which every token of the past moves either offset. `reach`: the most cached tokens, the last ones; `skips`:
// bytes by which each that is left out moves the source's offset and the target's.
struct Pieces {
  explicit Pieces(const py::object& p)
      : fixed(p.attr("fixed").cast<long long>()),
        per_token(p.attr("per_token").cast<long long>()),
        per_past(p.attr("per_past").cast<long long>()),
        at_past(p.attr("at_past").cast<long long>()),
        counts(p.attr("counts").cast<Pair>()),
        source_strides(p.attr("source_strides").cast<Pair>()),
        target_strides(p.attr("target_strides").cast<Pair>()),
        rows(p.attr("rows").cast<std::optional<int>>()),
        pasts(p.attr("pasts").cast<std::optional<int>>()),
        reach(p.attr("reach").cast<std::optional<long long>>()),
        skips(p.attr("skips").cast<Pair>()) {}

  long long cached(long long past) const { return reach && *reach < past ? *reach : past; }
  long long size(long long tokens, long long past) const {
    return fixed + per_token * tokens + per_past * cached(past);
  }
  long long count(int number, long long tokens, long long past) const {
    return (number == 0 ? counts.first : counts.second) * (rows == number    ? tokens
                                                           : pasts == number ? cached(past)
                                                                             : 1);
  }
  // Bytes by which the source's offset and the target's move.
  Pair shifts(long long past) const {
    const long long skipped = past - cached(past);
    return {at_past * past + skips.first * skipped, at_past * past + skips.second * skipped};
  }

  long long fixed, per_token, per_past, at_past;
  Pair counts, source_strides, target_strides;
  std::optional<int> rows, pasts;
  std::optional<long long> reach;
  Pair skips;
};

class Submissions {
 public:
  void run(const py::object& queue, const py::object& stage, const Buffer* source, const Buffer* target,
           const py::buffer& stamps, long long first, long long last, std::pair<long long, long long> chunk,
           const Waits& wait, const std::shared_ptr<Event>& done) {
    const auto [number, size] = chunk;
    add(queues_, queue_of(queue),
        [pass = stage_pass(stage, source, target, stamps, first, last), part = Chunk{number, size},
         wait = events_of(wait), done](Queue& to, long long tokens, long long past) {
          to.submit({pass(tokens, past, part.start(), part.stop(tokens)), wait, done});
        });
  }

  // `move`: a Move of executor/devices/move_calls.py.
  void move(const py::object& engine, const py::object& move, std::pair<long long, long long> chunk, const Waits& wait,
            const std::shared_ptr<Event>& done, const py::object& times) {
    const auto target = move.attr("target").cast<Buffer>(), source = move.attr("source").cast<Buffer>();
    const auto to = move.attr("target_offset").cast<long long>(), from = move.attr("source_offset").cast<long long>();
    const auto [number, size] = chunk;
    add(engines_, engine_of(engine),
        [target, source, to, from, pieces = Pieces(move.attr("pieces")), part = Chunk{number, size},
         wait = events_of(wait), done, times = Times(times)](CopyEngine& lane, long long all, long long before) {
          const long long tokens = part.stop(all) - part.start(), past = before + part.start();
          const auto [source_shift, target_shift] = pieces.shifts(past);
          Copy copy = strided_copy(
              target, to + target_shift, pieces.target_strides, source, from + source_shift, pieces.source_strides,
              {pieces.count(0, tokens, past), pieces.count(1, tokens, past)}, pieces.size(tokens, past));
          copy.wait = wait;
          copy.done = done;
          copy.times = times.data;
          copy.keep = times.view;
          lane.submit(std::move(copy));
        });
  }

  // What only Python can submit.
  void call(const std::function<void(long long, long long)>& submit) { calls_.push_back(submit); }

  // All of them in order, for a pass of `tokens` on top of `past`.
  void submit(long long tokens, long long past) const {
    for (const auto& queue : queues_) queue->collect();
    for (const auto& engine : engines_) engine->collect();
    const py::gil_scoped_release release;
    for (const auto& each : calls_) each(tokens, past);
  }

 private:
  template <class Lane, class Submit>
  void add(std::vector<std::shared_ptr<Lane>>& lanes, const std::shared_ptr<Lane>& lane, Submit submit) {
    if (std::find(lanes.begin(), lanes.end(), lane) == lanes.end()) lanes.push_back(lane);
    calls_.push_back(
        [lane, submit = std::move(submit)](long long tokens, long long past) { submit(*lane, tokens, past); });
  }

  std::vector<std::shared_ptr<Queue>> queues_;
  std::vector<std::shared_ptr<CopyEngine>> engines_;
  std::vector<std::function<void(long long, long long)>> calls_;
};

}  // namespace

void register_submissions(py::module_& module) {
  py::class_<Submissions>(module, "Submissions")
      .def(py::init<>())
      .def("run", &Submissions::run, py::arg("queue"), py::arg("stage"), py::arg("source").none(true),
           py::arg("target").none(true), py::arg("stamps"), py::arg("first"), py::arg("last"), py::arg("chunk"),
           py::arg("wait") = Waits{}, py::arg("done") = nullptr)
      .def("move", &Submissions::move, py::arg("engine"), py::arg("move"), py::arg("chunk"), py::arg("wait") = Waits{},
           py::arg("done") = nullptr, py::arg("times") = py::none())
      .def("call", &Submissions::call, py::arg("submit"))
      .def("submit", &Submissions::submit, py::arg("tokens"), py::arg("past"));
}

}  // namespace helm
