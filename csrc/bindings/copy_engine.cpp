#include "../copy_engine.h"

#include "bindings.h"

namespace helm {
namespace {

void expect_range(const char* what, const Buffer& buffer, size_t offset, size_t size) {
  if (offset > buffer.size || size > buffer.size - offset)
    throw py::value_error(std::string(what) + " has " + std::to_string(buffer.size) + " bytes; " +
                          std::to_string(size) + " from offset " + std::to_string(offset) + " do not fit");
}

long long submit(CopyEngine& engine, const Buffer& target, long long target_offset, const Buffer& source,
                 long long source_offset, long long size) {
  const Copy copy{target, count_of("target_offset", target_offset, 0), source,
                  count_of("source_offset", source_offset, 0), count_of("size", size, 0)};
  expect_range("target", target, copy.target_offset, copy.size);
  expect_range("source", source, copy.source_offset, copy.size);
  const py::gil_scoped_release release;
  return engine.submit(copy);
}

std::pair<double, double> wait(CopyEngine& engine, long long ticket) {
  const py::gil_scoped_release release;
  const Span span = engine.wait(ticket);
  return {span.start, span.end};
}

}  // namespace

void register_copy_engine(py::module_& module) {
  py::class_<CopyEngine>(module, "CopyEngine")
      .def(py::init<double, double, int>(), py::arg("rate"), py::arg("latency"), py::arg("cpu"))
      .def("submit", &submit, py::arg("target"), py::arg("target_offset"), py::arg("source"),
           py::arg("source_offset"), py::arg("size"))
      .def("wait", &wait, py::arg("ticket"));
}

}  // namespace helm
