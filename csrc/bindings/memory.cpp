// Pool, Arena and Buffer.
#include <system_error>

#include "bindings/bindings.h"

namespace helm {

void register_memory(py::module_& module) {
  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const OutOfMemory& e) {
      PyErr_SetString(PyExc_MemoryError, e.what());
    } catch (const std::system_error& e) {  // a thread that the system does not start
      errno = e.code().value();
      PyErr_SetFromErrno(PyExc_OSError);
    }
  });

  py::class_<Pool, std::shared_ptr<Pool>>(module, "Pool")
      .def(py::init<const std::vector<int>&>(), py::arg("cpus"))
      .def_property_readonly("threads", &Pool::threads);

  py::class_<Buffer>(module, "Buffer", py::buffer_protocol())
      .def_readonly("size", &Buffer::size)
      .def(
          "part",
          [](const Buffer& b, long long offset, long long size) {
            const size_t at = count_of("offset", offset, 0), bytes = count_of("size", size, 0);
            expect_range("buffer", b, at, bytes);
            return Buffer{b.arena, b.data + at, bytes};
          },
          py::arg("offset"), py::arg("size"))
      .def_buffer([](Buffer& b) {
        return py::buffer_info(reinterpret_cast<unsigned char*>(b.data), static_cast<py::ssize_t>(b.size));
      });

  py::class_<Arena, std::shared_ptr<Arena>>(module, "Arena")
      .def(py::init([](long long capacity) { return std::make_shared<Arena>(count_of("capacity", capacity)); }),
           py::arg("capacity"))
      .def_property_readonly("capacity", &Arena::capacity)
      .def_property_readonly("used", &Arena::used)
      .def(
          "alloc",
          [](const std::shared_ptr<Arena>& arena, long long size, const std::string& what) {
            const size_t bytes = count_of("size", size, 0);
            return Buffer{arena, arena->alloc(bytes, what), bytes};
          },
          py::arg("size"), py::arg("what"));
}

}  // namespace helm
