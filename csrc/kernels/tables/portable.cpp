// Kernels for any processor: the oracle of the others.
#include "kernels/simd/portable.h"
//
#include "kernels/isa.h"
#include "kernels/tables/table_impl.h"

const helm::Kernels& helm::portable_kernels() { return kTable; }
