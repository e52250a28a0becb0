// Kernels for any processor: the oracle of the others.
#include "kernels/simd/portable.h"
//
#include "kernels/isa.h"
#include "kernels/tables/table_impl.h"

const helm::Kernels& helm::portable_kernels() {
  static constexpr Kernels table = table_by_name(portable_mixers);
  return table;
}
