#include "bindings/mixer_operations.h"

#include <limits>

#include "formats/shape.h"
#include "stage/recurrent_operation.h"

namespace helm {
namespace {

// Of `width` numbers for every sequence; a buffer may hold those of more sequences than a pass has, and snapshots.
States states_at(Keeper& keeper, const py::dict& fields, size_t width) {
  if (!has(fields, "states")) return {nullptr, 0, width, 0};
  const Buffer& buffer = keeper.keep(fields["states"]);
  const size_t bytes = product({width, sizeof(float)});
  expect_size("states", buffer, bytes);
  return {reinterpret_cast<float*>(buffer.data), buffer.size / bytes, width, count_or(fields, "snapshots", 0)};
}

}  // namespace

std::unique_ptr<Operation> convolution_of(Keeper& keeper, const py::dict& fields) {
  auto made = std::make_unique<ConvolutionOperation>();
  made->channels = count_at(fields, "channels"), made->at = count_or(fields, "at", 0);
  made->taps = count_at(fields, "taps", 2);
  made->gates = flag_at(fields, "gates"), made->silu = flag_at(fields, "silu");
  const size_t width = count_at(fields, "width");
  made->reads = reads(fields, {width});
  made->leaves = leaves(fields, made->gates ? made->channels : width);
  made->weights = keeper.floats(fields, "weights", product({made->taps, made->channels}));
  made->bias = keeper.floats(fields, "bias", made->channels);
  made->factors = keeper.floats(fields, "factors", width);
  made->states = states_at(keeper, fields, product({made->taps - 1, made->channels}));
  return made;
}

std::unique_ptr<Operation> recurrence_of(Keeper& keeper, const py::dict& fields) {
  auto made = std::make_unique<RecurrenceOperation>();
  RecurrenceShape& s = made->shape;
  s.key_heads = count_at(fields, "key_heads"), s.value_heads = count_at(fields, "value_heads");
  s.key_dim = count_at(fields, "key_dim"), s.value_dim = count_at(fields, "value_dim");
  s.per_dimension = flag_at(fields, "per_dimension");
  s.corrects = flag_at(fields, "corrects"), s.normalised = flag_at(fields, "normalised");
  s.tiled = flag_at(fields, "tiled");
  s.query_scale = number_or(fields, "query_scale", 1);
  made->queries = count_at(fields, "queries", 0), made->keys = count_at(fields, "keys", 0);
  made->values = count_at(fields, "values", 0), made->steps = count_or(fields, "steps", 0);
  made->longest = number_or(fields, "longest", std::numeric_limits<float>::infinity());
  const size_t width = count_at(fields, "width"), decays = made->decays();
  made->reads = s.corrects ? reads(fields, {width, decays, s.value_heads}) : reads(fields, {width});
  made->leaves = leaves(fields, product({s.value_heads, s.value_dim}));
  if (!s.corrects) made->leaves.push_back({text_at(fields, "decays"), decays});
  made->offsets = keeper.floats(fields, "offsets", decays);
  made->rates = keeper.floats(fields, "rates", s.value_heads);
  made->passing = keeper.floats(fields, "passing", s.value_heads);
  made->states = states_at(keeper, fields, product({s.value_heads, s.key_dim, s.value_dim}));
  return made;
}

std::unique_ptr<Operation> gated_norm_of(Keeper& keeper, const py::dict& fields) {
  auto made = std::make_unique<GatedNormOperation>();
  const size_t width = count_at(fields, "width");
  made->groups = count_at(fields, "groups"), made->at = count_or(fields, "at", 0);
  made->reads = reads(fields, {width, count_at(fields, "gate_width")});
  made->leaves = leaves(fields, width);
  if (has(fields, "eps")) made->eps = fields["eps"].cast<float>();
  made->own_weights = flag_at(fields, "own_weights"), made->gate_first = flag_at(fields, "gate_first");
  made->weights = keeper.floats(fields, "weights", made->own_weights ? width : width / made->groups);
  made->gate = choice_at<GateKind>(fields, "gate", {{"sigmoid", GateKind::sigmoid}, {"silu", GateKind::silu}});
  return made;
}

}  // namespace helm
