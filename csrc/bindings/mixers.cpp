// Gates, norms with gates, convolutions and linear recurrences, for tests and measurements of these kernels alone.
#include <limits>

#include "bindings/bindings.h"
#include "formats/shape.h"
#include "kernels/isa.h"
#include "kernels/recurrent/recurrence.h"

namespace helm {
namespace {

GateKind gate_of(const std::string& name) {
  if (name == "none") return GateKind::none;
  if (name == "sigmoid") return GateKind::sigmoid;
  if (name == "silu") return GateKind::silu;
  throw py::value_error("gate must be none, sigmoid or silu");
}

// f32 (count,) of a Python buffer, or null for None.
class FloatView {
 public:
  FloatView(const char* what, const py::object& source, size_t count, bool writable = false) {
    if (source.is_none()) return;
    view_ = std::make_unique<View>(what, source.cast<py::buffer>(), count, sizeof(float), writable);
  }
  float* data() const { return view_ == nullptr ? nullptr : static_cast<float*>(view_->data()); }
  // Throws ValueError for None.
  float* required(const char* what) const {
    if (view_ == nullptr) throw py::value_error(std::string(what) + " must not be None");
    return data();
  }

 private:
  std::unique_ptr<View> view_;
};

void activate_checked(const std::string& activation, float limit, const py::object& gate, const py::object& up,
                      long long n) {
  if (!(limit > 0)) throw py::value_error("limit must be above 0");
  const size_t count = count_of("n", n);
  const FloatView from("gate", gate, count), to("up", up, count, true);
  const Activation kind = activation_of(activation);
  float* values = to.required("up");
  const py::gil_scoped_release release;
  kernels().mixers().activate_within(kind, limit, from.data(), values, count);
}

void gate_checked(const std::string& kind, const py::object& x, const py::object& z, long long rows, long long width,
                  bool by_row) {
  const size_t n = count_of("rows", rows), columns = count_of("width", width);
  const FloatView to("x", x, product({n, columns}), true), from("z", z, by_row ? n : product({n, columns}));
  const MixerKernels& k = kernels().mixers();
  float *values = to.required("x"), *gates = from.required("z");
  const GateKind gate = gate_of(kind);
  const py::gil_scoped_release release;
  for (size_t r = 0; r < n; ++r)
    by_row ? k.gate_row(gate, values + r * columns, gates[r], columns)
           : k.gate(gate, values + r * columns, gates + r * columns, columns);
}

void multiply_checked(const py::object& x, const py::object& factors, long long n) {
  const size_t count = count_of("n", n);
  const FloatView to("x", x, count, true), from("factors", factors, count);
  float *values = to.required("x"), *by = from.required("factors");
  const py::gil_scoped_release release;
  kernels().mixers().multiply(values, by, count);
}

void rope_pairs_checked(const py::object& x, const py::object& cos, const py::object& sin, const py::object& out,
                        long long half) {
  const size_t count = count_of("half", half);
  const FloatView from("x", x, 2 * count), near("cos", cos, count), far("sin", sin, count),
      to("out", out, 2 * count, true);
  const float *values = from.required("x"), *c = near.required("cos"), *s = far.required("sin");
  float* target = to.required("out");
  const py::gil_scoped_release release;
  kernels().mixers().rope_pairs(values, c, s, count, target);
}

void gated_norm_checked(const py::object& x, const py::object& z, const py::object& weight, const py::object& out,
                        long long groups, long long width, float eps, const std::string& kind, bool gate_first,
                        bool own_weights) {
  const size_t n = count_of("groups", groups), columns = count_of("width", width), all = product({n, columns});
  const FloatView from("x", x, all), gates("z", z, all), factors("weight", weight, own_weights ? all : columns);
  const FloatView to("out", out, all, true);
  if ((gate_of(kind) == GateKind::none) != z.is_none()) throw py::value_error("z must be given where there is a gate");
  const GatedNormArgs args{from.required("x"), gates.data(), factors.data(), to.required("out"), n, columns, eps,
                           gate_of(kind),      gate_first,   own_weights};
  const py::gil_scoped_release release;
  kernels().mixers().gated_norm(args);
}

void convolve_checked(Pool& pool, const py::object& x, const py::object& weight, const py::object& bias,
                      const py::object& state, long long tokens, long long channels, long long taps, bool silu) {
  const size_t n = count_of("tokens", tokens), c = count_of("channels", channels), k = count_of("taps", taps, 2);
  if (k > kMostTaps) throw py::value_error("taps must be at most " + std::to_string(kMostTaps));
  const FloatView values("x", x, product({n, c}), true), factors("weight", weight, product({k, c}));
  const FloatView added("bias", bias, c), kept("state", state, product({k - 1, c}), true);
  ConvolveArgs args{};
  args.x = values.required("x"), args.stride = c, args.tokens = n, args.channels = c;
  args.weight = factors.required("weight"), args.bias = added.data(), args.state = kept.required("state");
  args.taps = k, args.silu = silu;
  const py::gil_scoped_release release;
  auto work = [&](size_t thread) { convolve_share(kernels().mixers(), thread, pool.threads(), args); };
  pool.run(work);
}

void decays_checked(const py::object& raw, const py::object& bias, const py::object& a_log, const py::object& dt,
                    const py::object& decay, long long heads, long long per, float longest) {
  const size_t h = count_of("heads", heads), p = count_of("per", per), n = product({h, p});
  if (!(longest > 0)) throw py::value_error("longest must be above 0");
  const FloatView from("raw", raw, n), added("bias", bias, n), slopes("a_log", a_log, h);
  const FloatView steps("dt", dt, n, true), to("decay", decay, n, true);
  const DecayArgs args{from.required("raw"), added.required("bias"), slopes.required("a_log"), n, p, longest,
                       steps.data(),         to.required("decay")};
  const py::gil_scoped_release release;
  kernels().mixers().decays(args);
}

void recur_checked(Pool& pool, const py::object& q, const py::object& k, const py::object& v, const py::object& decay,
                   const py::object& rate, const py::object& skip, const py::object& state, const py::object& out,
                   const std::vector<long long>& shape, long long sequences, long long tokens, bool per_dimension,
                   bool corrects, bool normalised, float query_scale, bool tiled) {
  if (shape.size() != 4) throw py::value_error("shape is key heads, value heads, key dimensions, value dimensions");
  RecurrenceShape s{};
  s.key_heads = count_of("key heads", shape[0]), s.value_heads = count_of("value heads", shape[1]);
  s.key_dim = count_of("key dimensions", shape[2]), s.value_dim = count_of("value dimensions", shape[3]);
  s.per_dimension = per_dimension, s.corrects = corrects, s.normalised = normalised, s.query_scale = query_scale;
  s.tiled = tiled;
  check(s);
  const size_t n = count_of("tokens", tokens), count = count_of("sequences", sequences), rows = product({count, n});
  const size_t keys = s.key_heads * s.key_dim, values = s.value_heads * s.value_dim;
  const size_t decays = s.value_heads * (per_dimension ? s.key_dim : 1), states = product({values, s.key_dim});
  const FloatView queries("q", q, product({rows, keys})), read("k", k, product({rows, keys}));
  const FloatView written("v", v, product({rows, values})), kept("decay", decay, product({rows, decays}));
  const FloatView rates("rate", rate, product({rows, s.value_heads})), skips("skip", skip, s.value_heads);
  const FloatView to("state", state, product({count, states}), true), made("out", out, product({rows, values}), true);
  std::vector<RecurrenceRun> runs;
  for (size_t i = 0; i < count; ++i)
    runs.push_back({queries.required("q") + i * n * keys, read.required("k") + i * n * keys,
                    written.required("v") + i * n * values, kept.required("decay") + i * n * decays,
                    rates.required("rate") + i * n * s.value_heads, skips.data(), made.required("out") + i * n * values,
                    to.required("state") + i * states, keys, values, decays, s.value_heads, values, n});
  const py::gil_scoped_release release;
  pool.reserve(recurrence_scratch(s.key_dim, s.value_dim));
  auto work = [&](size_t thread) {
    recur_share(kernels().mixers(), thread, pool.threads(), s, runs.data(), runs.size(), pool.scratch(thread));
  };
  pool.run(work);
}

}  // namespace

void register_mixers(py::module_& module) {
  const float infinity = std::numeric_limits<float>::infinity();
  module.def("activate_within", &activate_checked, py::arg("activation"), py::arg("limit"), py::arg("gate"),
             py::arg("up"), py::arg("n"));
  module.def("gate", &gate_checked, py::arg("kind"), py::arg("x"), py::arg("z"), py::arg("rows"), py::arg("width"),
             py::arg("by_row") = false);
  module.def("multiply", &multiply_checked, py::arg("x"), py::arg("factors"), py::arg("n"));
  module.def("rope_pairs", &rope_pairs_checked, py::arg("x"), py::arg("cos"), py::arg("sin"), py::arg("out"),
             py::arg("half"));
  module.def("gated_norm", &gated_norm_checked, py::arg("x"), py::arg("z"), py::arg("weight"), py::arg("out"),
             py::arg("groups"), py::arg("width"), py::arg("eps"), py::arg("kind") = "none",
             py::arg("gate_first") = false, py::arg("own_weights") = false);
  module.def("convolve", &convolve_checked, py::arg("pool"), py::arg("x"), py::arg("weight"), py::arg("bias"),
             py::arg("state"), py::arg("tokens"), py::arg("channels"), py::arg("taps"), py::arg("silu"));
  module.def("decays", &decays_checked, py::arg("raw"), py::arg("bias"), py::arg("a_log"), py::arg("dt"),
             py::arg("decay"), py::arg("heads"), py::arg("per") = 1, py::arg("longest") = infinity);
  module.def("recur", &recur_checked, py::arg("pool"), py::arg("q"), py::arg("k"), py::arg("v"), py::arg("decay"),
             py::arg("rate"), py::arg("skip"), py::arg("state"), py::arg("out"), py::arg("shape"), py::arg("sequences"),
             py::arg("tokens"), py::arg("per_dimension") = false, py::arg("corrects") = true,
             py::arg("normalised") = true, py::arg("query_scale") = 1.0f, py::arg("tiled") = false);
}

}  // namespace helm
