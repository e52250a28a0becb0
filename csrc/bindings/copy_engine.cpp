#include "runtime/copy_engine.h"

#include <cstdint>

#include "formats/shape.h"
#include "bindings/counts.h"

namespace helm {
namespace {

using Waits = std::vector<std::shared_ptr<Event>>;

// A CopyEngine whose copies may keep Python objects: they are destroyed by calls that hold the GIL.
class BoundEngine {
 public:
  CopyEngine& engine() { return engine_; }
  BoundEngine(double rate, double latency, int cpu, bool ahead) : engine_(rate, latency, cpu, ahead) {}
  ~BoundEngine() {
    {
      const py::gil_scoped_release release;
      engine_.stop();
    }
    engine_.collect();
  }

  long long submit(Copy copy, const py::object& times, const Waits& wait, const std::shared_ptr<Event>& done) {
    engine_.collect();
    const Times filled(times);
    copy.wait = events_of(wait);
    copy.done = done;
    copy.times = filled.data;
    copy.keep = filled.view;
    const py::gil_scoped_release release;
    return engine_.submit(std::move(copy));
  }

  std::pair<double, double> wait(long long ticket) {
    const py::gil_scoped_release release;
    const Span span = engine_.wait(ticket);
    return {span.start, span.end};
  }

 private:
  CopyEngine engine_;
};

// Where the last piece of one side ends, from its offset; strides and counts have been checked one by one.
size_t reach(const size_t* strides, const size_t* counts, size_t size) {
  if (counts[0] == 0 || counts[1] == 0) return 0;
  size_t last = size;
  for (int i = 0; i < 2; ++i)
    if (__builtin_add_overflow(last, product({strides[i], counts[i] - 1}), &last))
      throw std::invalid_argument("a shape is too large");
  return last;
}

long long submit(BoundEngine& engine, const Buffer& target, long long target_offset, const Buffer& source,
                 long long source_offset, long long size, const Waits& wait, const std::shared_ptr<Event>& done,
                 const py::object& times) {
  const Copy copy{target, count_of("target_offset", target_offset, 0), source,
                  count_of("source_offset", source_offset, 0), count_of("size", size, 0)};
  expect_range("target", target, copy.target_offset, copy.size);
  expect_range("source", source, copy.source_offset, copy.size);
  return engine.submit(copy, times, wait, done);
}

long long submit_pieces(BoundEngine& engine, const Buffer& target, long long target_offset, const Buffer& source,
                        long long source_offset, const py::buffer& pieces, const Waits& wait,
                        const std::shared_ptr<Event>& done, const py::object& times) {
  Copy copy{target, count_of("target_offset", target_offset, 0), source, count_of("source_offset", source_offset, 0),
            0};
  copy.pieces = pieces_of(pieces, target, copy.target_offset, source, copy.source_offset);
  if (copy.pieces.empty()) throw py::value_error("a copy has pieces");
  return engine.submit(std::move(copy), times, wait, done);
}

long long submit_strided(BoundEngine& engine, const Buffer& target, long long target_offset, Pair target_strides,
                         const Buffer& source, long long source_offset, Pair source_strides, Pair counts,
                         long long size, const Waits& wait, const std::shared_ptr<Event>& done,
                         const py::object& times) {
  return engine.submit(
      strided_copy(target, target_offset, target_strides, source, source_offset, source_strides, counts, size), times,
      wait, done);
}

long long submit_lookup(BoundEngine& engine, const Buffer& target, long long target_offset, const Buffer& table,
                        const std::string& format, long long rows, long long columns, const Buffer& ids,
                        long long count, const Waits& wait, const std::shared_ptr<Event>& done,
                        const py::object& times) {
  const Matrix matrix = matrix_of("table", table, format, rows, columns);
  Copy copy{target, count_of("target_offset", target_offset, 0), table, 0, row_size(matrix.format, matrix.columns)};
  copy.counts[0] = count_of("count", count, 0);
  copy.lookup = {ids, matrix.rows, matrix.columns, matrix.format};
  expect_size("ids", ids, product({copy.counts[0], sizeof(int32_t)}));
  expect_range("target", target, copy.target_offset, product({copy.counts[0], copy.size}));
  return engine.submit(copy, times, wait, done);
}

}  // namespace

Copy strided_copy(const Buffer& target, long long target_offset, Pair target_strides, const Buffer& source,
                  long long source_offset, Pair source_strides, Pair counts, long long size) {
  const Copy copy{
      target,
      count_of("target_offset", target_offset, 0),
      source,
      count_of("source_offset", source_offset, 0),
      count_of("size", size, 0),
      {count_of("target_strides", target_strides.first, 0), count_of("target_strides", target_strides.second, 0)},
      {count_of("source_strides", source_strides.first, 0), count_of("source_strides", source_strides.second, 0)},
      {count_of("counts", counts.first, 0), count_of("counts", counts.second, 0)}};
  product({copy.counts[0], copy.counts[1], copy.size});
  expect_range("target", target, copy.target_offset, reach(copy.target_strides, copy.counts, copy.size));
  expect_range("source", source, copy.source_offset, reach(copy.source_strides, copy.counts, copy.size));
  return copy;
}

std::shared_ptr<CopyEngine> engine_of(const py::object& engine) {
  const auto bound = engine.cast<std::shared_ptr<BoundEngine>>();
  return {bound, &bound->engine()};
}

void register_copy_engine(py::module_& module) {
  py::class_<BoundEngine, std::shared_ptr<BoundEngine>>(module, "CopyEngine")
      .def(py::init<double, double, int, bool>(), py::arg("rate"), py::arg("latency"), py::arg("cpu"),
           py::arg("ahead") = false)
      .def("submit", &submit, py::arg("target"), py::arg("target_offset"), py::arg("source"), py::arg("source_offset"),
           py::arg("size"), py::arg("wait") = Waits{}, py::arg("done") = nullptr, py::arg("times") = py::none())
      .def("submit_pieces", &submit_pieces, py::arg("target"), py::arg("target_offset"), py::arg("source"),
           py::arg("source_offset"), py::arg("pieces"), py::arg("wait") = Waits{}, py::arg("done") = nullptr,
           py::arg("times") = py::none())
      .def("submit_strided", &submit_strided, py::arg("target"), py::arg("target_offset"), py::arg("target_strides"),
           py::arg("source"), py::arg("source_offset"), py::arg("source_strides"), py::arg("counts"), py::arg("size"),
           py::arg("wait") = Waits{}, py::arg("done") = nullptr, py::arg("times") = py::none())
      .def("submit_lookup", &submit_lookup, py::arg("target"), py::arg("target_offset"), py::arg("table"),
           py::arg("fmt"), py::arg("rows"), py::arg("columns"), py::arg("ids"), py::arg("count"),
           py::arg("wait") = Waits{}, py::arg("done") = nullptr, py::arg("times") = py::none())
      .def("wait", &BoundEngine::wait, py::arg("ticket"));
}

}  // namespace helm
