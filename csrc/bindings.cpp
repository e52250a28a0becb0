// The Python module `helmsman.executor._kernels`.
#include <pybind11/pybind11.h>

PYBIND11_MODULE(_kernels, module) { module.doc() = "Native kernels of the executor."; }
