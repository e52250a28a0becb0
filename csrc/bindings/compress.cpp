// Packing, unpacking and decompression.
#include "../compress.h"

#include "../linear.h"
#include "../pack.h"
#include "bindings.h"

namespace helm {
namespace {

size_t stored_size(const std::string& format, size_t rows, size_t columns) {
  return format == "q4" ? q4_size(rows, columns) : packed_size(format_of(format), rows, columns);
}

void pack_checked(const py::buffer& source, const std::string& source_format, const Buffer& target,
                  const std::string& format, long long rows, long long columns) {
  const size_t r = count_of("rows", rows), c = count_of("columns", columns);
  const Format from = format_of(source_format);
  expect_size("target", target, stored_size(format, r, c));
  const View view("source", source, product({r, c}), size_of(from), false);
  if (format == "q4") {
    const py::gil_scoped_release release;
    return quantise(view.data(), from, target.data, r, c);
  }
  const Format to = format_of(format);
  const py::gil_scoped_release release;
  pack(view.data(), from, target.data, to, r, c);
}

void unpack_checked(const Buffer& source, const std::string& format, const py::buffer& target, long long rows,
                    long long columns) {
  const size_t r = count_of("rows", rows), c = count_of("columns", columns);
  expect_size("source", source, stored_size(format, r, c));
  const View view("target", target, product({r, c}), sizeof(float), true);
  auto* out = static_cast<float*>(view.data());
  if (format == "q4") {
    const py::gil_scoped_release release;
    return dequantise(source.data, out, r, c);
  }
  const Format from = format_of(format);
  const py::gil_scoped_release release;
  for (size_t row = 0; row < r; ++row) unpack_row(source.data, from, c, row, out + row * c);
}

void decompress_checked(Pool& pool, const Buffer& source, const Buffer& target, const std::string& format,
                        long long rows, long long columns) {
  const std::function<void()> run = decompression(pool, source, target, format, rows, columns);
  const py::gil_scoped_release release;
  run();
}

}  // namespace

std::function<void()> decompression(Pool& pool, const Buffer& source, const Buffer& target,
                                    const std::string& format, long long rows, long long columns) {
  const Matrix m = matrix_of("target", target, format, rows, columns);
  expect_size("source", source, q4_size(m.rows, m.columns));
  return [&pool, from = source.data, to = target.data, m] { decompress(pool, from, to, m.format, m.rows, m.columns); };
}

void register_compress(py::module_& module) {
  module.def(
      "packed_size",
      [](const std::string& format, long long rows, long long columns) {
        return stored_size(format, count_of("rows", rows), count_of("columns", columns));
      },
      py::arg("fmt"), py::arg("rows"), py::arg("columns"));
  module.def("pack", &pack_checked, py::arg("source"), py::arg("source_format"), py::arg("target"), py::arg("fmt"),
             py::arg("rows"), py::arg("columns"));
  module.def("unpack", &unpack_checked, py::arg("source"), py::arg("fmt"), py::arg("target"), py::arg("rows"),
             py::arg("columns"));
  module.def("decompress", &decompress_checked, py::arg("pool"), py::arg("source"), py::arg("target"), py::arg("fmt"),
             py::arg("rows"), py::arg("columns"));
}

}  // namespace helm
