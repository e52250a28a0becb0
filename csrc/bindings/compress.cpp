// Packing, unpacking and decompression.
#include "kernels/cache/compress.h"

#include "kernels/cache/cache_rows.h"

#include "formats/finite.h"
#include "kernels/isa.h"
#include "kernels/linear/linear.h"
#include "formats/pack.h"
#include "bindings/bindings.h"

namespace helm {
namespace {

// A packed matrix's format and shape.
struct Packed {
  Packed(const std::string& name, long long rows, long long columns)
      : format(stored_format_of(name)), rows(count_of("rows", rows)), columns(count_of("columns", columns)) {
    expect_columns(format, this->columns);
  }
  size_t size() const { return packed_size(format, rows, columns); }

  Format format;
  size_t rows, columns;
};

void pack_checked(const py::buffer& source, const std::string& source_format, const Buffer& target,
                  const std::string& format, long long rows, long long columns) {
  const Packed to(format, rows, columns);
  const Format from = stored_format_of(source_format);
  expect_columns(from, to.columns);
  expect_size("target", target, to.size());
  const size_t element = quantised(from) ? 1 : size_of(from);
  const View view("source", source, product({to.rows, row_size(from, to.columns) / element}), element, false);
  bool sound;
  {
    const py::gil_scoped_release release;
    sound = pack(view.data(), from, target.data, to.format, to.rows, to.columns);
  }
  if (sound) return;
  PyErr_SetString(PyExc_FloatingPointError, ("values that are not finite in " + format).c_str());
  throw py::error_already_set();
}

bool finite_checked(const py::buffer& source, const std::string& name, long long rows, long long columns) {
  const Packed from(name, rows, columns);
  const size_t element = quantised(from.format) ? 1 : size_of(from.format);
  const View view("source", source, product({from.rows, row_size(from.format, from.columns) / element}), element,
                  false);
  const py::gil_scoped_release release;
  return finite(view.data(), from.format, from.rows, from.columns);
}

void unpack_checked(const Buffer& source, const std::string& format, const py::buffer& target, long long rows,
                    long long columns) {
  const Packed from(format, rows, columns);
  expect_size("source", source, from.size());
  const View view("target", target, product({from.rows, from.columns}), sizeof(float), true);
  auto* out = static_cast<float*>(view.data());
  const py::gil_scoped_release release;
  for (size_t row = 0; row < from.rows; ++row)
    unpack_row(source.data, from.format, from.columns, row, out + row * from.columns);
}

void quantise_checked(const py::buffer& source, const py::buffer& target, const std::string& name, long long rows,
                      long long columns) {
  const Packed to(name, rows, columns);
  if (!quantised(to.format)) throw py::value_error(name + " is not a quantised format");
  const View from("source", source, product({to.rows, to.columns}), sizeof(float), false);
  const View made("target", target, product({to.rows, row_size(to.format, to.columns)}), 1, true);
  const py::gil_scoped_release release;
  quantise(static_cast<const float*>(from.data()), made.data(), to.format, to.rows, to.columns);
}

void decompress_checked(Pool& pool, const Buffer& source, const Buffer& target, const std::string& format,
                        long long rows, long long columns) {
  const std::function<void()> run = decompression(pool, source, target, format, rows, columns);
  const py::gil_scoped_release release;
  run();
}

}  // namespace

std::function<void()> decompression(Pool& pool, const Buffer& source, const Buffer& target, const std::string& format,
                                    long long rows, long long columns) {
  const Matrix m = matrix_of("target", target, format, rows, columns);
  format_of(format);
  expect_size("source", source, packed_size(Format::q4, m.rows, m.columns));
  return [&pool, from = source.data, to = target.data, m] { decompress(pool, from, to, m.format, m.rows, m.columns); };
}

std::function<void()> turning(Pool& pool, const Buffer& source, long long source_offset,
                              const std::vector<long long>& source_strides, const Buffer& target,
                              long long target_offset, const std::vector<long long>& target_strides,
                              const std::vector<long long>& counts, const std::string& stored,
                              const std::string& format, bool transposed) {
  if (source_strides.size() != 3 || target_strides.size() != 3 || counts.size() != 4)
    throw py::value_error("rows have three strides on either side and four counts");
  RowsCall call{};
  size_t n[4];
  for (int i = 0; i < 4; ++i) n[i] = count_of("counts", counts[i], i == 2 ? 0 : 1);
  call.sequences = n[0], call.heads = n[1], call.tokens = n[2], call.head_dim = n[3];
  call.format = format_of(format);
  call.groups = stored == "q4";
  if (!call.groups && stored != format) throw py::value_error("rows in " + stored + " do not become " + format);
  call.transposed = transposed;
  const size_t width = size_of(call.format), row = call.groups ? q4_row_size(n[3]) : n[3] * width;
  for (int i = 0; i < 3; ++i) {
    call.row_strides[i] = count_of("source_strides", source_strides[i], 0);
    call.target_strides[i] = count_of("target_strides", target_strides[i], 0);
  }
  if (transposed && call.target_strides[2] % width != 0)
    throw py::value_error("transposed lines are whole values apart");
  const size_t from = count_of("source_offset", source_offset, 0), to = count_of("target_offset", target_offset, 0);
  if (n[2] > 0) {
    const size_t ahead = product({call.row_strides[0], n[0] - 1}) + product({call.row_strides[1], n[1] - 1});
    expect_range("source", source, from, ahead + product({call.row_strides[2], n[2] - 1}) + row);
    const size_t reach = product({call.target_strides[0], n[0] - 1}) + product({call.target_strides[1], n[1] - 1});
    const size_t lines = transposed ? n[3] : n[2];
    expect_range("target", target, to,
                 reach + product({call.target_strides[2], lines - 1}) + (transposed ? n[2] : n[3]) * width);
  }
  call.rows = static_cast<const char*>(source.data) + from;
  call.target = static_cast<char*>(target.data) + to;
  return [&pool, call] { turn_rows(pool, call); };
}

void turn_rows_checked(Pool& pool, const Buffer& source, long long source_offset,
                       const std::vector<long long>& source_strides, const Buffer& target, long long target_offset,
                       const std::vector<long long>& target_strides, const std::vector<long long>& counts,
                       const std::string& stored, const std::string& format, bool transposed) {
  const std::function<void()> run = turning(pool, source, source_offset, source_strides, target, target_offset,
                                            target_strides, counts, stored, format, transposed);
  const py::gil_scoped_release release;
  run();
}

void compress_rows(const py::buffer& source, const Buffer& target, long long rows, long long width) {
  const size_t n = count_of("rows", rows), w = count_of("width", width);
  const View view("source", source, product({n, w}), sizeof(float), false);
  expect_size("target", target, product({n, q4_row_size(w)}));
  const py::gil_scoped_release release;
  for (size_t row = 0; row < n; ++row)
    kernels().compress_row(static_cast<const float*>(view.data()) + row * w, w,
                           static_cast<char*>(target.data) + row * q4_row_size(w));
}

void register_compress(py::module_& module) {
  module.def(
      "packed_size",
      [](const std::string& format, long long rows, long long columns) { return Packed(format, rows, columns).size(); },
      py::arg("fmt"), py::arg("rows"), py::arg("columns"));
  module.def("pack", &pack_checked, py::arg("source"), py::arg("source_format"), py::arg("target"), py::arg("fmt"),
             py::arg("rows"), py::arg("columns"));
  module.def("finite", &finite_checked, py::arg("source"), py::arg("fmt"), py::arg("rows"), py::arg("columns"));
  module.def("unpack", &unpack_checked, py::arg("source"), py::arg("fmt"), py::arg("target"), py::arg("rows"),
             py::arg("columns"));
  module.def("quantise", &quantise_checked, py::arg("source"), py::arg("target"), py::arg("fmt"), py::arg("rows"),
             py::arg("columns"));
  module.def("turn_rows", &turn_rows_checked, py::arg("pool"), py::arg("source"), py::arg("source_offset"),
             py::arg("source_strides"), py::arg("target"), py::arg("target_offset"), py::arg("target_strides"),
             py::arg("counts"), py::arg("stored"), py::arg("fmt"), py::arg("transposed"));
  module.def("compress_rows", &compress_rows, py::arg("source"), py::arg("target"), py::arg("rows"), py::arg("width"));
  module.def("q4_row_size", [](long long width) { return q4_row_size(count_of("width", width)); }, py::arg("width"));
  module.def("decompress", &decompress_checked, py::arg("pool"), py::arg("source"), py::arg("target"), py::arg("fmt"),
             py::arg("rows"), py::arg("columns"));
}

}  // namespace helm
