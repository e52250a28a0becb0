#include "../linear.h"

#include "../pack.h"
#include "../shape.h"
#include "bindings.h"

namespace helm {
namespace {

void pack_checked(const py::buffer& source, const std::string& source_format, const Buffer& target,
                  const std::string& format, long long rows, long long columns) {
  const Matrix m = matrix_of("target", target, format, rows, columns);
  const Format from = format_of(source_format);
  const View view("source", source, product({m.rows, m.columns}), size_of(from), false);
  const py::gil_scoped_release release;
  pack(view.data(), from, target.data, m.format, m.rows, m.columns);
}

void linear_checked(Pool& pool, const std::string& format, const Buffer& weights, long long rows,
                    long long columns, const py::buffer& x, const py::buffer& y, long long tokens) {
  const Matrix m = matrix_of("weights", weights, format, rows, columns);
  const size_t n = count_of("tokens", tokens);
  const View input("x", x, product({n, m.columns}), sizeof(float), false);
  const View output("y", y, product({n, m.rows}), sizeof(float), true);
  const py::gil_scoped_release release;
  linear(pool, m, static_cast<const float*>(input.data()), static_cast<float*>(output.data()), n);
}

}  // namespace

void register_linear(py::module_& module) {
  module.def(
      "packed_size",
      [](const std::string& format, long long rows, long long columns) {
        return packed_size(format_of(format), count_of("rows", rows), count_of("columns", columns));
      },
      py::arg("fmt"), py::arg("rows"), py::arg("columns"));
  module.def("pack", &pack_checked, py::arg("source"), py::arg("source_format"), py::arg("target"), py::arg("fmt"),
             py::arg("rows"), py::arg("columns"));
  module.def("linear", &linear_checked, py::arg("pool"), py::arg("fmt"), py::arg("weights"), py::arg("rows"),
             py::arg("columns"), py::arg("x"), py::arg("y"), py::arg("tokens"));
}

}  // namespace helm
