// Event and Queue.
#include "runtime/queue.h"

#include "runtime/disk.h"
#include "stage/stage.h"
#include "bindings/counts.h"

namespace helm {
namespace {

using Waits = std::vector<std::shared_ptr<Event>>;

// A Queue whose items may keep Python objects: they are destroyed by calls that hold the GIL, never by its thread.
class BoundQueue {
 public:
  explicit BoundQueue(int cpu) : queue_(cpu) {}
  Queue& queue() { return queue_; }
  ~BoundQueue() {
    const py::gil_scoped_release release;
    queue_.stop();
  }

  template <class Kept>
  void submit(std::function<void()> run, Kept kept, const Times& times, const Waits& wait,
              const std::shared_ptr<Event>& done, std::optional<long long> rank = {}) {
    queue_.collect();
    queue_.submit({[run = std::move(run), kept = std::move(kept), view = times.view] { run(); }, events_of(wait), done,
                   times.data, rank});
  }

  void check() { queue_.check(); }

  void synchronize() {
    {
      const py::gil_scoped_release release;
      queue_.synchronize();
    }
    queue_.collect();
  }

 private:
  Queue queue_;
};

double time_of(const Event& event) {
  if (!event.poll()) throw py::value_error("the event has not been signalled");
  return event.time();
}

void run_stage(BoundQueue& queue, const py::object& stage, const Buffer* source, const Buffer* target, long long tokens,
               long long past, const py::buffer& stamps, long long first, std::optional<long long> last,
               long long start, std::optional<long long> stop, const Waits& wait, const std::shared_ptr<Event>& done) {
  queue.submit(stage_pass(stage, source, target, stamps, first, last)(tokens, past, start, stop), nullptr,
               Times(py::none()), wait, done);
}

void run_attend(BoundQueue& queue, const py::object& stage, long long block, const std::vector<SpanArgs>& spans,
                bool first, bool last, long long tokens, long long past, const py::object& times, const Waits& wait,
                const std::shared_ptr<Event>& done) {
  queue.submit(stage_attention(stage, block, spans, first, last, tokens, past), nullptr, Times(times), wait, done);
}

// `append` and attention of a layer, for rows whose queries, keys and values are in the stage's workspace.
void run_attend_ragged(BoundQueue& queue, const py::object& stage, const std::shared_ptr<Ragged>& rows, long long layer,
                       const py::object& times, const Waits& wait, const std::shared_ptr<Event>& done,
                       std::optional<long long> rank) {
  const std::shared_ptr<Stage> own = stage_of(stage);
  if (count_of("layer", layer, 0) >= own->spec().blocks) throw py::value_error("the stage has no such layer");
  const size_t first = own->find("append", layer), last = own->find("o", layer);
  own->check_ragged(*rows, rows->rows(), false, first, last);
  const auto work = [own, rows, first, last] {
    std::vector<double> stamps(last - first + 1);
    own->run_ragged(*rows, rows->rows(), nullptr, nullptr, first, last, stamps.data());
  };
  queue.submit(work, nullptr, Times(times), wait, done, rank);
}

void run_decompress(BoundQueue& queue, const std::shared_ptr<Pool>& pool, const Buffer& source, const Buffer& target,
                    const std::string& format, long long rows, long long columns, const py::object& times,
                    const Waits& wait, const std::shared_ptr<Event>& done) {
  queue.submit(decompression(*pool, source, target, format, rows, columns), std::make_tuple(pool, source, target),
               Times(times), wait, done);
}

// Of each buffer some pieces to other places in it, which are apart, by all threads of the pool.
void run_copy_pieces(BoundQueue& queue, const std::shared_ptr<Pool>& pool,
                     const std::vector<std::pair<Buffer, py::buffer>>& copies, const py::object& times,
                     const Waits& wait, const std::shared_ptr<Event>& done) {
  std::vector<std::pair<Buffer, std::vector<Piece>>> all;
  for (const auto& [buffer, pieces] : copies) all.emplace_back(buffer, pieces_of(pieces, buffer, 0, buffer, 0));
  const auto work = [pool, all = std::move(all)] {
    auto share = [&](size_t thread) {
      for (const auto& [buffer, pieces] : all) copy_share(buffer, pieces, thread, pool->threads());
    };
    pool->run(share);
  };
  queue.submit(work, nullptr, Times(times), wait, done);
}

void run_turn_rows(BoundQueue& queue, const std::shared_ptr<Pool>& pool, const Buffer& source, long long source_offset,
                   const std::vector<long long>& source_strides, const Buffer& target, long long target_offset,
                   const std::vector<long long>& target_strides, const std::vector<long long>& counts,
                   const std::string& stored, const std::string& format, bool transposed, const py::object& times,
                   const Waits& wait, const std::shared_ptr<Event>& done) {
  queue.submit(turning(*pool, source, source_offset, source_strides, target, target_offset, target_strides, counts,
                       stored, format, transposed),
               std::make_tuple(pool, source, target), Times(times), wait, done);
}

// What only Python can do in its turn, such as to look up which experts a pass has chosen.
void run_call(BoundQueue& queue, const py::function& function, const py::object& times, const Waits& wait,
              const std::shared_ptr<Event>& done) {
  const auto kept = std::make_shared<py::function>(function);
  const auto work = [called = kept.get()] {
    const py::gil_scoped_acquire acquire;
    try {
      (*called)();
    } catch (const py::error_already_set& error) {
      throw std::runtime_error(error.what());
    }
  };
  queue.submit(work, kept, Times(times), wait, done);
}

void run_read(BoundQueue& queue, const std::shared_ptr<DiskFile>& file, long long file_offset, const Buffer& target,
              long long target_offset, long long size, const py::object& times, const Waits& wait,
              const std::shared_ptr<Event>& done) {
  queue.submit(disk_read(file, file_offset, target, target_offset, size), nullptr, Times(times), wait, done);
}

}  // namespace

std::shared_ptr<Queue> queue_of(const py::object& queue) {
  const auto bound = queue.cast<std::shared_ptr<BoundQueue>>();
  return {bound, &bound->queue()};
}

void register_queue(py::module_& module) {
  py::class_<Event, std::shared_ptr<Event>>(module, "Event")
      .def(py::init<>())
      .def("clear", &Event::clear)
      .def("signal", &Event::signal)
      .def(
          "wait", [](const Event& event) { event.wait(); }, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("done", &Event::poll)
      .def_property_readonly("time", &time_of);
  py::class_<BoundQueue, std::shared_ptr<BoundQueue>>(module, "Queue")
      .def(py::init<int>(), py::arg("cpu") = -1)
      .def("run", &run_stage, py::arg("stage"), py::arg("source").none(true), py::arg("target").none(true),
           py::arg("tokens"), py::arg("past"), py::arg("stamps"), py::arg("first") = 0, py::arg("last") = py::none(),
           py::arg("start") = 0, py::arg("stop") = py::none(), py::arg("wait") = Waits{}, py::arg("done") = nullptr)
      .def("attend", &run_attend, py::arg("stage"), py::arg("block"), py::arg("spans"), py::arg("first"),
           py::arg("last"), py::arg("tokens"), py::arg("past"), py::arg("times") = py::none(),
           py::arg("wait") = Waits{}, py::arg("done") = nullptr)
      .def("attend_ragged", &run_attend_ragged, py::arg("stage"), py::arg("rows"), py::arg("layer"),
           py::arg("times") = py::none(), py::arg("wait") = Waits{}, py::arg("done") = nullptr,
           py::arg("rank") = py::none())
      .def("decompress", &run_decompress, py::arg("pool"), py::arg("source"), py::arg("target"), py::arg("fmt"),
           py::arg("rows"), py::arg("columns"), py::arg("times") = py::none(), py::arg("wait") = Waits{},
           py::arg("done") = nullptr)
      .def("copy_pieces", &run_copy_pieces, py::arg("pool"), py::arg("copies"), py::arg("times") = py::none(),
           py::arg("wait") = Waits{}, py::arg("done") = nullptr)
      .def("turn_rows", &run_turn_rows, py::arg("pool"), py::arg("source"), py::arg("source_offset"),
           py::arg("source_strides"), py::arg("target"), py::arg("target_offset"), py::arg("target_strides"),
           py::arg("counts"), py::arg("stored"), py::arg("fmt"), py::arg("transposed"), py::arg("times") = py::none(),
           py::arg("wait") = Waits{}, py::arg("done") = nullptr)
      .def("read", &run_read, py::arg("file"), py::arg("file_offset"), py::arg("target"), py::arg("target_offset"),
           py::arg("size"), py::arg("times") = py::none(), py::arg("wait") = Waits{}, py::arg("done") = nullptr)
      .def("call", &run_call, py::arg("function"), py::arg("times") = py::none(), py::arg("wait") = Waits{},
           py::arg("done") = nullptr)
      .def("check", &BoundQueue::check)
      .def("synchronize", &BoundQueue::synchronize);
}

}  // namespace helm
