#include "kernels/cache/compress.h"

#include "kernels/isa.h"

namespace helm {

void decompress(Pool& pool, const void* source, void* target, Format to, size_t rows, size_t columns) {
  const Kernels& k = kernels();
  auto work = [&](size_t thread) {
    const Range panels = share_of((rows + kPanel - 1) / kPanel, thread, pool.threads());
    k.expand(to, static_cast<const char*>(source) + panels.begin * kPanel * row_size(Format::q4, columns), columns,
             panels.end - panels.begin, static_cast<char*>(target) + panels.begin * columns * kPanel * size_of(to));
  };
  pool.run(work);
}

}  // namespace helm
