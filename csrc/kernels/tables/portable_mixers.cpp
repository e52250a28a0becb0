// Kernels of routers and recurrent mixers for any processor: the oracle of the others.
#include "kernels/simd/portable.h"
//
#include "kernels/isa.h"
#include "kernels/tables/mixers_table_impl.h"

const helm::MixerKernels& helm::portable_mixers() { return kMixers; }
