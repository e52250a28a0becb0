// Kernels for any processor: the oracle of the others.
#include "simd_portable.h"
//
#include "isa.h"
#include "table_impl.h"

const helm::Kernels& helm::portable_kernels() { return kTable; }
