#include "runtime/disk.h"

#include "bindings/bindings.h"

namespace helm {
namespace {

size_t block_of(const DiskFile& file, long long offset, size_t size) {
  const size_t at = count_of("offset", offset, 0);
  if (at % DiskFile::kBlock != 0) throw py::value_error("offset must be a multiple of 4096, not " + std::to_string(at));
  if (at > file.size() || size > file.size() - at)
    throw py::value_error("the file has " + std::to_string(file.size()) + " bytes; " + std::to_string(size) +
                          " from offset " + std::to_string(at) + " do not fit");
  return at;
}

void write_checked(DiskFile& file, long long offset, const py::buffer& source, long long count) {
  const size_t size = count_of("size", count, 0);
  const View view("source", source, size, 1, false);
  const size_t at = block_of(file, offset, size);
  const py::gil_scoped_release release;
  file.write(at, static_cast<const char*>(view.data()), size);
}

void read_checked(const std::shared_ptr<DiskFile>& file, long long offset, const Buffer& target,
                  long long target_offset, long long size) {
  const std::function<void()> run = disk_read(file, offset, target, target_offset, size);
  const py::gil_scoped_release release;
  run();
}

}  // namespace

std::function<void()> disk_read(const std::shared_ptr<DiskFile>& file, long long offset, const Buffer& target,
                                long long target_offset, long long size) {
  const size_t to = count_of("target_offset", target_offset, 0), bytes = count_of("size", size, 0);
  const size_t at = block_of(*file, offset, bytes);
  expect_range("target", target, to, bytes);
  return [file, at, target, to, bytes] { file->read(at, target.data + to, bytes); };
}

void register_disk(py::module_& module) {
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const DiskError& e) {
      errno = e.code();
      PyErr_SetFromErrnoWithFilename(PyExc_OSError, e.what());
    }
  });
  py::class_<DiskFile, std::shared_ptr<DiskFile>>(module, "DiskFile")
      .def(py::init([](const std::string& path, long long size, bool direct, bool create) {
             return std::make_shared<DiskFile>(path, count_of("size", size), direct, create);
           }),
           py::arg("path"), py::arg("size"), py::arg("direct"), py::arg("create"))
      .def_property_readonly("direct", &DiskFile::direct)
      .def_property_readonly("size", &DiskFile::size)
      .def("write", &write_checked, py::arg("offset"), py::arg("source"), py::arg("size"))
      .def("read", &read_checked, py::arg("offset"), py::arg("target"), py::arg("target_offset"), py::arg("size"));
}

}  // namespace helm
