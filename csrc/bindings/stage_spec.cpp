#include "bindings/stage_spec.h"

#include "formats/shape.h"
#include "bindings/spec_fields.h"

namespace helm {
namespace {

Room room_of(const py::dict& fields) {
  if (!fields.contains("room")) return {};
  const auto room = fields["room"].cast<py::dict>();
  return {count_at(room, "wide", 0), count_at(room, "inner", 0), count_at(room, "columns", 0),
          count_at(room, "heads", 0), count_at(room, "scores", 0)};
}

}  // namespace

ParsedSpec parse_spec(const py::dict& fields) {
  ParsedSpec parsed;
  StageSpec& s = parsed.spec;
  s.hidden = count_at(fields, "hidden");
  s.vocab = count_at(fields, "vocab");
  s.batch = count_at(fields, "batch");
  s.max_tokens = count_at(fields, "max_tokens");
  s.capacity = count_at(fields, "capacity");
  s.context = fields.contains("context") ? count_at(fields, "context") : s.capacity;
  s.sequences = fields.contains("sequences") ? count_at(fields, "sequences") : 0;
  if (fields.contains("chunk_rows")) s.chunk_rows = count_at(fields, "chunk_rows");
  s.last = fields.contains("last") ? count_at(fields, "last") : 1;
  s.passing = count_or(fields, "passing", 0);
  s.paged = flag_at(fields, "paged");
  s.blocks = count_at(fields, "blocks", 0);
  s.room = room_of(fields);
  product({s.batch, s.max_tokens + s.sequences, s.hidden, sizeof(float)});
  const Format format = kv_format_of(text_at(fields, "kv_format"));
  const Activations attention = fields.contains("attention_activations")
                                    ? attention_activations_of(text_at(fields, "attention_activations"))
                                    : Activations::f32;
  parse_operations(Keeper(parsed), field(fields, "operations").cast<py::list>(), format, attention);
  check(s);
  return parsed;
}

}  // namespace helm
