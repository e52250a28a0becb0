#include "stage/probe.h"

#include <deque>

#include "kernels/isa.h"
#include "formats/shape.h"
#include "bindings/spans.h"

namespace helm {
namespace {

using Caches = std::vector<std::pair<const Buffer*, const Buffer*>>;

std::vector<double> time_linear_checked(Pool& pool, const std::string& format,
                                        const std::vector<const Buffer*>& weights, long long rows, long long columns,
                                        long long tokens, long long repeats, const std::string& activations) {
  if (weights.empty()) throw py::value_error("weights must hold at least one buffer");
  std::vector<Matrix> matrices;
  for (const Buffer* buffer : weights) {
    matrices.push_back(matrix_of("weights", *buffer, format, rows, columns));
    matrices.back().activations = activations_of(activations);
  }
  const size_t n = count_of("tokens", tokens), times = count_of("repeats", repeats);
  product({n, matrices[0].rows + matrices[0].columns, sizeof(float)});
  const py::gil_scoped_release release;
  return time_linear(pool, matrices, n, times);
}

std::vector<double> time_spans(Pool& pool, const std::string& format, const std::vector<std::vector<SpanArgs>>& layers,
                               long long heads, long long kv_heads, long long head_dim, long long batch,
                               long long repeats, long long tokens, const std::string& activations, long long window,
                               float softcap) {
  Attention shape{count_of("heads", heads), count_of("kv_heads", kv_heads),       count_of("head_dim", head_dim), 1,
                  kv_format_of(format),     attention_activations_of(activations)};
  shape.window = count_of("window", window, 0), shape.softcap = softcap;
  if (shape.heads % shape.kv_heads != 0) throw py::value_error("heads must be a multiple of kv_heads");
  if (!divides(shape.format, shape.head_dim)) throw py::value_error("q8_0 needs a head_dim that is a multiple of 32");
  const size_t rows = count_of("batch", batch), times = count_of("repeats", repeats);
  const size_t wanted = count_of("tokens", tokens);
  if (layers.empty()) throw py::value_error("layers must hold at least one list of spans");
  product({rows, wanted, shape.q_width(), sizeof(float)});
  std::deque<BoundSpans> bound;
  std::vector<KvSpans> spans;
  for (const auto& layer : layers) spans.push_back(bound.emplace_back(shape, rows, layer).spans());
  for (const KvSpans& layer : spans)
    for (const KvSpan& span : layer) shape.capacity = std::max(shape.capacity, span.position + span.count);
  if (wanted > shape.capacity) throw py::value_error("tokens exceed the positions of the spans");
  const py::gil_scoped_release release;
  return time_attention(pool, shape, spans, rows, wanted, times);
}

std::vector<double> time_attention_checked(Pool& pool, const std::string& format, const Caches& kv, long long heads,
                                           long long kv_heads, long long head_dim, long long capacity,
                                           long long context, long long repeats, long long tokens,
                                           const std::string& activations, long long window, float softcap) {
  if (kv.empty()) throw py::value_error("kv must hold at least one (K, V) pair");
  if (context > capacity) throw py::value_error("context exceeds capacity");
  const long long size =
      row_size(kv_format_of(format), count_of("head_dim", head_dim)) * count_of("capacity", capacity);
  std::vector<std::vector<SpanArgs>> layers;
  for (const auto& [keys, values] : kv) layers.push_back({{keys, 0, values, 0, 0, size, 0, context}});
  return time_spans(pool, format, layers, heads, kv_heads, head_dim, 1, repeats, tokens, activations, window, softcap);
}

using TimeDivided = std::vector<double> (*)(Pool&, const Attention&, const std::vector<const void*>&, size_t, size_t,
                                            size_t);

std::vector<double> time_divided_checked(TimeDivided timer, bool keys, Pool& pool, const std::string& format,
                                         const Caches& kv, long long heads, long long kv_heads, long long head_dim,
                                         long long capacity, long long context, long long batch, long long repeats) {
  if (kv.empty()) throw py::value_error("kv must hold at least one (K, V) pair");
  const Attention shape{count_of("heads", heads), count_of("kv_heads", kv_heads), count_of("head_dim", head_dim),
                        count_of("capacity", capacity), format_of(format)};
  if (shape.heads % shape.kv_heads != 0) throw py::value_error("heads must be a multiple of kv_heads");
  const size_t length = count_of("context", context), rows = count_of("batch", batch);
  const size_t times = count_of("repeats", repeats);
  if (length > shape.capacity) throw py::value_error("context exceeds capacity");
  const size_t size = product({rows, shape.kv_heads, shape.capacity, shape.head_dim, size_of(shape.format)});
  product({rows, shape.heads, scores_stride(shape), sizeof(float)});
  std::vector<const void*> caches;
  for (const auto& [k, v] : kv) {
    expect_size(keys ? "keys" : "values", keys ? *k : *v, size);
    caches.push_back(keys ? k->data : v->data);
  }
  const py::gil_scoped_release release;
  return timer(pool, shape, caches, length, rows, times);
}

std::vector<double> time_scores_checked(Pool& pool, const std::string& format, const Caches& kv, long long heads,
                                        long long kv_heads, long long head_dim, long long capacity, long long context,
                                        long long batch, long long repeats) {
  return time_divided_checked(&time_scores, true, pool, format, kv, heads, kv_heads, head_dim, capacity, context, batch,
                              repeats);
}

std::vector<double> time_wv_checked(Pool& pool, const std::string& format, const Caches& kv, long long heads,
                                    long long kv_heads, long long head_dim, long long capacity, long long context,
                                    long long batch, long long repeats) {
  return time_divided_checked(&time_weighted, false, pool, format, kv, heads, kv_heads, head_dim, capacity, context,
                              batch, repeats);
}

std::vector<double> time_read_checked(Pool& pool, const Buffer& buffer, long long repeats, long long piece) {
  const size_t times = count_of("repeats", repeats), step = count_of("piece", piece, 0);
  if (buffer.size % 64 != 0 || step % 64 != 0)
    throw py::value_error("buffer size and piece must be multiples of 64 bytes");
  const py::gil_scoped_release release;
  return time_read(pool, buffer.data, buffer.size, times, step);
}

constexpr std::pair<const char*, InputKind> kInputKinds[] = {{"floats", InputKind::floats},
                                                             {"tiled", InputKind::tiled},
                                                             {"rounded", InputKind::rounded},
                                                             {"words", InputKind::words},
                                                             {"small_words", InputKind::small_words},
                                                             {"bytes", InputKind::bytes},
                                                             {"pairs", InputKind::pairs}};

InputKind kind_of(const std::string& name) {
  for (const auto& [text, kind] : kInputKinds)
    if (name == text) return kind;
  throw py::value_error("kind must be floats, tiled, rounded, words, small_words, bytes or pairs");
}

std::string product_kind(const std::string& format, long long tokens, const std::string& activations) {
  const InputKind kind =
      input_kind(kernels(), stored_format_of(format), activations_of(activations), count_of("tokens", tokens));
  for (const auto& [text, each] : kInputKinds)
    if (kind == each) return text;
  throw std::logic_error("an input has no name");
}

std::vector<double> time_peak_checked(Pool& pool, const std::string& kind, long long rounds, long long repeats) {
  const InputKind which = kind_of(kind);
  const size_t n = count_of("rounds", rounds), times = count_of("repeats", repeats);
  const py::gil_scoped_release release;
  return time_peak(pool, which, n, times);
}

std::vector<unsigned> times_taken_checked(Pool& pool, const std::vector<long long>& jobs, long long least,
                                          long long most) {
  std::vector<size_t> counts;
  for (const long long items : jobs) counts.push_back(count_of("items", items, 0));
  const size_t fewest = count_of("least", least), largest = count_of("most", most);
  const py::gil_scoped_release release;
  return times_taken(pool, counts, fewest, largest);
}

}  // namespace

void register_probe(py::module_& module) {
  module.def("times_taken", &times_taken_checked, py::arg("pool"), py::arg("jobs"), py::arg("least"), py::arg("most"));
  module.def("product_kind", &product_kind, py::arg("fmt"), py::arg("tokens"), py::arg("activations") = "int16");
  module.def("peak_products", [](const std::string& kind) { return peak_products(kind_of(kind)); }, py::arg("kind"));
  module.def("time_peak", &time_peak_checked, py::arg("pool"), py::arg("kind"), py::arg("rounds"), py::arg("repeats"));
  module.def("time_linear", &time_linear_checked, py::arg("pool"), py::arg("fmt"), py::arg("weights"), py::arg("rows"),
             py::arg("columns"), py::arg("tokens"), py::arg("repeats"), py::arg("activations") = "int16");
  module.def("time_attention", &time_attention_checked, py::arg("pool"), py::arg("fmt"), py::arg("kv"),
             py::arg("heads"), py::arg("kv_heads"), py::arg("head_dim"), py::arg("capacity"), py::arg("context"),
             py::arg("repeats"), py::arg("tokens") = 1, py::arg("activations") = "f32", py::arg("window") = 0,
             py::arg("softcap") = 0.0f);
  module.def("time_spans", &time_spans, py::arg("pool"), py::arg("fmt"), py::arg("layers"), py::arg("heads"),
             py::arg("kv_heads"), py::arg("head_dim"), py::arg("batch"), py::arg("repeats"), py::arg("tokens") = 1,
             py::arg("activations") = "f32", py::arg("window") = 0, py::arg("softcap") = 0.0f);
  module.def("time_scores", &time_scores_checked, py::arg("pool"), py::arg("fmt"), py::arg("kv"), py::arg("heads"),
             py::arg("kv_heads"), py::arg("head_dim"), py::arg("capacity"), py::arg("context"), py::arg("batch"),
             py::arg("repeats"));
  module.def("time_wv", &time_wv_checked, py::arg("pool"), py::arg("fmt"), py::arg("kv"), py::arg("heads"),
             py::arg("kv_heads"), py::arg("head_dim"), py::arg("capacity"), py::arg("context"), py::arg("batch"),
             py::arg("repeats"));
  module.def("time_read", &time_read_checked, py::arg("pool"), py::arg("buffer"), py::arg("repeats"),
             py::arg("piece") = 0);
}

}  // namespace helm
