#include "kernels/linear/linear.h"

#include "formats/shape.h"
#include "bindings/bindings.h"

namespace helm {
namespace {

void linear_checked(Pool& pool, const std::string& format, const Buffer& weights, long long rows, long long columns,
                    const py::buffer& x, const py::buffer& y, long long tokens, const std::string& activations) {
  Matrix m = matrix_of("weights", weights, format, rows, columns);
  m.activations = activations_of(activations);
  const size_t n = count_of("tokens", tokens);
  const View input("x", x, product({n, m.columns}), sizeof(float), false);
  const View output("y", y, product({n, m.rows}), sizeof(float), true);
  const py::gil_scoped_release release;
  linear(pool, m, static_cast<const float*>(input.data()), static_cast<float*>(output.data()), n);
}

}  // namespace

void register_linear(py::module_& module) {
  module.def("linear", &linear_checked, py::arg("pool"), py::arg("fmt"), py::arg("weights"), py::arg("rows"),
             py::arg("columns"), py::arg("x"), py::arg("y"), py::arg("tokens"), py::arg("activations") = "int16");
}

}  // namespace helm
