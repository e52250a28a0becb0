#include "stage/probe.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <stdexcept>
#include <string>

#include "runtime/arena.h"
#include "runtime/clock.h"
#include "kernels/isa.h"

namespace helm {
namespace {

std::vector<float> random_floats(size_t n) {
  std::minstd_rand generator(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(n);
  for (float& v : values) v = uniform(generator);
  return values;
}

// once(thread, repeat) on every thread, `repeats` times with a barrier after each; seconds between barriers.
template <class Once>
std::vector<double> timed(Pool& pool, size_t repeats, const Once& once) {
  std::vector<double> seconds(repeats);
  auto work = [&](size_t thread) {
    pool.barrier();
    double last = now();
    for (size_t r = 0; r < repeats; ++r) {
      once(thread, r);
      pool.barrier();
      const double time = now();
      if (thread == 0) seconds[r] = time - last;
      last = time;
    }
  };
  pool.run(work);
  return seconds;
}

HeadCaches whole(const Attention& shape, const void* cache) {
  return caches_in(shape, const_cast<void*>(cache), 0, shape.kv_heads);
}

// One of scores_share and weighted_share, which read one of K and V each.
template <class Share>
std::vector<double> time_divided(const Share& share, Pool& pool, const Attention& shape,
                                 const std::vector<const void*>& caches, size_t context, size_t batch, size_t repeats) {
  const Kernels& k = kernels();
  const std::vector<float> q = random_floats(batch * shape.q_width());
  std::vector<float> scores = random_floats(batch * shape.heads * scores_stride(shape));
  std::vector<float> out(batch * shape.q_width());
  std::vector<HeadCaches> heads;
  for (const void* cache : caches) heads.push_back(whole(shape, cache));
  pool.reserve(attention_scratch(shape));
  return timed(pool, repeats, [&](size_t thread, size_t repeat) {
    const HeadCache* cache = heads[repeat % heads.size()].data();
    share(k, pool, thread, shape,
          {cache, cache, batch, 1, context - 1, {0, shape.kv_heads}, q.data(), scores.data(), out.data()});
  });
}

constexpr size_t kLine = 64;

// This thread's lines of [begin, begin + bytes).
unsigned long long read_share(const Kernels& k, const char* begin, size_t bytes, size_t thread, size_t threads) {
  const Range lines = share_of(bytes / kLine, thread, threads);
  return k.read(begin + lines.begin * kLine, (lines.end - lines.begin) * kLine);
}

const Peak& peak_of(const Kernels& k, InputKind kind) {
  switch (kind) {
    case InputKind::words:
    case InputKind::small_words:
      return k.peak_words;
    case InputKind::bytes:
      return k.peak_bytes;
    case InputKind::pairs:
      return k.peak_pairs;
    default:
      return k.peak_floats;
  }
}

}  // namespace

std::vector<unsigned> times_taken(Pool& pool, const std::vector<size_t>& jobs, size_t least, size_t most) {
  size_t all = 0;
  for (const size_t items : jobs) all += items;
  std::vector<std::atomic<unsigned>> times(all);
  auto work = [&](size_t thread) {
    size_t first = 0;
    for (const size_t items : jobs) {
      pool.divide(thread, items, least, most, [&](const Range& taken) {
        for (size_t item = taken.begin; item < taken.end; ++item) ++times[first + item];
      });
      first += items;
    }
  };
  pool.run(work);
  return {times.begin(), times.end()};
}

size_t peak_products(InputKind kind) { return peak_of(kernels(), kind).products; }

std::vector<double> time_peak(Pool& pool, InputKind kind, size_t rounds, size_t repeats) {
  const Peak& peak = peak_of(kernels(), kind);
  if (peak.run == nullptr) throw std::invalid_argument(std::string(kernels().name) + " has no units for such products");
  return timed(pool, repeats, [&](size_t, size_t) { peak.run(rounds); });
}

std::vector<double> time_linear(Pool& pool, const std::vector<Matrix>& matrices, size_t tokens, size_t repeats) {
  const Kernels& k = kernels();
  const size_t rows = matrices[0].rows, columns = matrices[0].columns;
  const std::vector<float> values = random_floats(tokens * columns);
  const size_t packed_size = tokens * input_size(columns);
  Arena arena((values.size() + packed_size + tokens * rows) * sizeof(float) + 3 * kLine);  // huge pages, as stages have
  const auto floats = [&](size_t count) { return reinterpret_cast<float*>(arena.alloc(count * sizeof(float), "x")); };
  float *const x = floats(values.size()), *const packed = floats(packed_size), *const y = floats(tokens * rows);
  std::copy(values.begin(), values.end(), x);
  pool.reserve(linear_scratch(columns));
  return timed(pool, repeats, [&](size_t thread, size_t repeat) {
    linear_by_all(k, pool, thread, matrices[repeat % matrices.size()], x, y, tokens, packed);
  });
}

std::vector<double> time_attention(Pool& pool, const Attention& shape, const std::vector<KvSpans>& layers, size_t batch,
                                   size_t tokens, size_t repeats) {
  const Kernels& k = kernels();
  const std::vector<float> q = random_floats(batch * tokens * shape.q_width());
  std::vector<float> out(q.size());
  pool.reserve(attention_scratch(shape));
  return timed(pool, repeats, [&](size_t thread, size_t repeat) {
    attention_share(k, pool, thread, shape,
                    {layers[repeat % layers.size()],
                     batch,
                     tokens,
                     shape.capacity - tokens,
                     q.data(),
                     out.data(),
                     {nullptr, nullptr, true, true}});
  });
}

std::vector<double> time_scores(Pool& pool, const Attention& shape, const std::vector<const void*>& keys,
                                size_t context, size_t batch, size_t repeats) {
  return time_divided(scores_share, pool, shape, keys, context, batch, repeats);
}

std::vector<double> time_weighted(Pool& pool, const Attention& shape, const std::vector<const void*>& values,
                                  size_t context, size_t batch, size_t repeats) {
  return time_divided(weighted_share, pool, shape, values, context, batch, repeats);
}

std::vector<double> time_read(Pool& pool, const char* data, size_t bytes, size_t repeats, size_t piece) {
  const Kernels& k = kernels();
  const size_t step = piece == 0 ? bytes : piece;
  std::atomic<unsigned long long> seen{0};  // keeps the reads from being optimised away
  return timed(pool, repeats, [&](size_t thread, size_t) {
    for (size_t begin = 0; begin < bytes; begin += step)
      seen ^= read_share(k, data + begin, std::min(step, bytes - begin), thread, pool.threads());
  });
}

}  // namespace helm
