// Operations of a stage from Python, a function for each kind.
#include <cmath>
#include <limits>

#include "formats/shape.h"
#include "kernels/attention/attention_divided.h"
#include "stage/attention_operation.h"
#include "stage/embedding_operation.h"
#include "stage/experts_operation.h"
#include "stage/latent_operation.h"
#include "stage/layer_inputs_operation.h"
#include "stage/linear_operation.h"
#include "stage/norm_sum_operation.h"
#include "bindings/cache_fields.h"
#include "bindings/mixer_operations.h"

namespace helm {
namespace {

using Made = std::unique_ptr<Operation>;

class Operations {
 public:
  Operations(Keeper keeper, Format format, Activations attention)
      : keeper_(keeper), format_(format), attention_(attention) {}

  Made parse(const py::dict& fields) {
    using Parse = Made (Operations::*)(const py::dict&);
    const Parse parse = choice_at<Parse>(fields, "kind",
                                         {{"embedding", &Operations::embedding},
                                          {"norm", &Operations::norm},
                                          {"norm-sum", &Operations::norm_sum},
                                          {"layer-table", &Operations::layer_table},
                                          {"layer-inputs", &Operations::layer_inputs},
                                          {"linear", &Operations::linear},
                                          {"append", &Operations::append},
                                          {"attention", &Operations::attention},
                                          {"scores", &Operations::divided},
                                          {"softmax", &Operations::divided},
                                          {"weighted", &Operations::divided},
                                          {"router", &Operations::router},
                                          {"experts", &Operations::experts},
                                          {"member", &Operations::member},
                                          {"combine", &Operations::combine},
                                          {"row-gate", &Operations::row_gate},
                                          {"value-norm", &Operations::value_norm},
                                          {"latent-append", &Operations::latent_append},
                                          {"grouped", &Operations::grouped},
                                          {"convolution", &Operations::convolution},
                                          {"recurrence", &Operations::recurrence},
                                          {"gated-norm", &Operations::gated_norm},
                                          {"head", &Operations::head}});
    Made made = (this->*parse)(fields);
    made->name = text_at(fields, "name");
    if (const py::object block = field(fields, "block"); !block.is_none())
      made->block = count_of("block", block.cast<long long>(), 0);
    return made;
  }

 private:
  StageSpec& spec() const { return keeper_.spec(); }

  // 4-byte numbers of a buffer, which others read or write while the stage lives.
  int32_t* numbers(const py::dict& fields, const char* name, size_t count) {
    const Buffer& buffer = keeper_.keep(fields[name]);
    expect_size(name, buffer, product({count, sizeof(int32_t)}));
    return reinterpret_cast<int32_t*>(buffer.data);
  }

  Made embedding(const py::dict& fields) {
    auto made = std::make_unique<EmbeddingOperation>();
    made->leaves = leaves(fields, spec().hidden);
    made->looked_up = flag_at(fields, "looked_up");
    const auto table = field(fields, "table").cast<py::dict>();
    made->table = made->looked_up ? looked_up(table) : keeper_.matrix("embedding", table);
    made->positions = keeper_.floats(fields, "positions", product({spec().context, spec().hidden}));
    made->scale = number_or(fields, "scale", 1);
    return made;
  }

  // Rows of `width` numbers of all tokens of a pass.
  LayerInputs rows_beside(const py::dict& fields, size_t width) {
    const Buffer& buffer =
        keeper_.sized("layer_inputs", field(fields, "layer_inputs"), {spec().max_tokens, width, sizeof(float)});
    return {reinterpret_cast<float*>(buffer.data), width};
  }

  Made layer_table(const py::dict& fields) {
    auto made = std::make_unique<LayerTableOperation>();
    made->looked_up = flag_at(fields, "looked_up");
    const auto table = field(fields, "table").cast<py::dict>();
    made->table = made->looked_up ? looked_up(table) : keeper_.matrix(text_at(fields, "name"), table);
    made->scale = number_or(fields, "scale", 1);
    made->inputs = rows_beside(fields, made->table.columns);
    return made;
  }

  Made layer_inputs(const py::dict& fields) {
    auto made = std::make_unique<LayerInputsOperation>();
    const size_t width = count_at(fields, "width");
    made->part = count_at(fields, "part");
    made->reads = reads(fields, {width});
    made->weights = keeper_.norm(fields, text_at(fields, "name"), field(fields, "weights"), made->part);
    made->scale = number_or(fields, "scale", 1);
    made->inputs = rows_beside(fields, width);
    return made;
  }

  // A pass's own rows of the table, one after the other.
  Matrix looked_up(const py::dict& fields) {
    Matrix m;
    m.format = stored_format_of(text_at(fields, "format"));
    m.rows = count_at(fields, "rows"), m.columns = count_at(fields, "columns");
    expect_columns(m.format, m.columns);
    const size_t row = row_size(m.format, m.columns);
    m.weights = keeper_.sized("embedding", field(fields, "weight"), {spec().max_tokens, row}).data;
    return m;
  }

  Made norm(const py::dict& fields) {
    auto made = std::make_unique<NormOperation>();
    made->reads = reads(fields, {spec().hidden});
    made->leaves = leaves(fields, spec().hidden);
    made->weights = keeper_.norm(fields, text_at(fields, "name"), field(fields, "weights"), spec().hidden);
    made->last = flag_at(fields, "last");
    made->continues = flag_at(fields, "continues");
    return made;
  }

  Made norm_sum(const py::dict& fields) {
    auto made = std::make_unique<NormSumOperation>();
    made->reads = reads(fields, {spec().hidden});
    made->leaves = leaves(fields, spec().hidden);
    made->weights = keeper_.norm(fields, text_at(fields, "name"), field(fields, "weights"), spec().hidden);
    made->adds = flag_at(fields, "adds");
    made->factor = keeper_.floats(fields, "factor", 1);
    return made;
  }

  Made linear(const py::dict& fields) {
    auto made = std::make_unique<LinearOperation>();
    const size_t rows = count_at(fields, "rows"), columns = count_at(fields, "columns");
    const bool gated = py::len(field(fields, "inputs")) > 1;
    made->reads = gated ? reads(fields, {columns, rows}) : reads(fields, {columns});
    made->leaves = leaves(fields, rows);
    made->adds = made->leaves[0].area() == Area::hidden;
    if (const py::object activation = field(fields, "activation"); !activation.is_none())
      made->activation = activation_at(fields);
    made->factor = factor(fields);
    if (has(fields, "layer_inputs")) {
      made->inputs = rows_beside(fields, count_at(fields, "width"));
      made->at = count_at(fields, "at", 0);
    }
    made->matrix = keeper_.optional_matrix(text_at(fields, "name"), field(fields, "matrix"));
    return made;
  }

  // By what a product is multiplied; what it adds to is divided by it meanwhile.
  static float factor(const py::dict& fields) {
    const float made = number_or(fields, "factor", 1);
    expect(std::isnormal(made), text_at(fields, "name") + " needs a factor other than 0");
    return made;
  }

  Made head(const py::dict& fields) {
    auto made = std::make_unique<HeadOperation>();
    made->reads = reads(fields, {spec().hidden});
    made->leaves = leaves(fields, spec().vocab);
    made->matrix = keeper_.matrix("head", field(fields, "matrix").cast<py::dict>());
    made->factor = factor(fields), made->softcap = number_or(fields, "softcap", 0);
    return made;
  }

  Attention shape(const py::dict& fields) {
    Attention shape{count_at(fields, "heads"), count_at(fields, "kv_heads"), count_at(fields, "head_dim"),
                    count_or(fields, "rows", spec().capacity), format_};
    shape.activations = attention_;
    shape.scale = number_or(fields, "scale", 0), shape.softcap = number_or(fields, "softcap", 0);
    shape.window = count_or(fields, "window", 0);
    shape.sinks = keeper_.floats(fields, "sinks", shape.heads);
    product({spec().batch, spec().max_tokens, shape.q_width(), sizeof(float)});
    return shape;
  }

  Made append(const py::dict& fields) {
    auto made = std::make_unique<AppendOperation>();
    const Attention& s = made->shape = shape(fields);
    made->gated = flag_at(fields, "gated");
    std::vector<size_t> widths(py::len(field(fields, "inputs")), s.kv_width());
    if (widths.empty() || widths.size() > 3)
      throw py::value_error("queries are appended, with keys and values or without");
    widths[0] = product({made->gated ? size_t{2} : 1, s.q_width()});
    made->reads = reads(fields, widths);
    if (made->gated) made->leaves = leaves(fields, s.q_width());
    made->transposed = flag_at(fields, "transposed");
    made->over_projection = choice_at<bool>(fields, "over", {{"head", false}, {"projection", true}});
    const bool whole = made->over_projection;
    made->q_norm = keeper_.norm(fields, "q_norm", field(fields, "q_norm"), whole ? s.q_width() : s.head_dim);
    made->k_norm = keeper_.norm(fields, "k_norm", field(fields, "k_norm"), whole ? s.kv_width() : s.head_dim);
    if (fields.contains("value_norm"))
      made->value_norm = keeper_.norm(fields, "value_norm", field(fields, "value_norm"), s.head_dim);
    made->rotary_dim = count_at(fields, "rotary_dim", 0);
    if (const size_t half = made->rotary_dim / 2; half > 0) {
      made->cos = keeper_.floats(fields, "cos", product({spec().context, half}));
      made->sin = keeper_.floats(fields, "sin", product({spec().context, half}));
    }
    made->caches = block_caches(keeper_, s, fields);
    made->caches.kept_keys = kept_heads(keeper_, s, fields, "kept_keys");
    made->caches.kept_values = kept_heads(keeper_, s, fields, "kept_values");
    return made;
  }

  Made attention(const py::dict& fields) {
    auto made = std::make_unique<AttentionOperation>();
    made->shape = shape(fields);
    const size_t width = made->shape.q_width();
    const bool gated = py::len(field(fields, "inputs")) > 1;
    made->reads = gated ? reads(fields, {width, product({2, width})}) : reads(fields, {width});
    made->leaves = leaves(fields, width);
    made->caches = block_caches(keeper_, made->shape, fields);
    return made;
  }

  Made divided(const py::dict& fields) {
    using Part = DividedOperation::Part;
    auto made = std::make_unique<DividedOperation>();
    made->part = choice_at<Part>(fields, "kind",
                                 {{"scores", Part::scores}, {"softmax", Part::softmax}, {"weighted", Part::weighted}});
    const Attention& s = made->shape = shape(fields);
    const size_t scores = product({s.heads, scores_stride(s)});
    made->reads = reads(fields, {made->part == Part::scores ? s.q_width() : scores});
    made->leaves = leaves(fields, made->part == Part::weighted ? s.q_width() : scores);
    made->heads = {0, s.kv_heads};
    if (const py::object own = field(fields, "computes"); !own.is_none()) {
      const auto [begin, end] = own.cast<std::pair<long long, long long>>();
      made->heads = {count_of("computes", begin, 0), count_of("computes", end, 0)};
    }
    if (made->part != Part::softmax) made->caches = block_caches(keeper_, s, fields);
    return made;
  }

  Made router(const py::dict& fields) {
    auto made = std::make_unique<RouterOperation>();
    RouterSpec& r = made->router;
    r.experts = count_at(fields, "experts"), r.chosen = count_at(fields, "chosen");
    made->reads = reads(fields, {spec().hidden});
    made->leaves = leaves(fields, r.experts);
    made->leaves.push_back({text_at(fields, "choice"), r.chosen});
    made->leaves.push_back({text_at(fields, "shares"), r.chosen});
    if (has(fields, "message")) made->leaves.push_back({text_at(fields, "message"), spec().hidden + 2 * r.chosen});
    made->sends = flag_at(fields, "sends");
    if (has(fields, "record"))
      made->record = numbers(fields, "record", product({spec().batch, spec().context, r.chosen}));
    r.score = choice_at<RouterScore>(fields, "score",
                                     {{"softmax", RouterScore::softmax},
                                      {"sigmoid", RouterScore::sigmoid},
                                      {"sqrt-softplus", RouterScore::sqrt_softplus},
                                      {"none", RouterScore::none}});
    r.weights = choice_at<RouterWeights>(
        fields, "weights",
        {{"scores", RouterWeights::scores}, {"softmax-of-chosen", RouterWeights::softmax_of_chosen}});
    r.normalised = flag_at(fields, "normalised"), r.eps = field(fields, "eps").cast<float>();
    r.scaling = field(fields, "scaling").cast<float>();
    r.correction = keeper_.floats(fields, "correction", r.experts);
    r.expert_scale = keeper_.floats(fields, "expert_scale", r.experts);
    r.groups = count_or(fields, "groups", 0), r.kept = count_or(fields, "kept", 0);
    r.best_two = r.groups > 0 && choice_at<bool>(fields, "by", {{"best", false}, {"best-two", true}});
    if (fields.contains("input_norm")) {
      made->input_norm = keeper_.norm(fields, "router", field(fields, "input_norm"), spec().hidden);
      made->leaves.push_back({"router_input", spec().hidden});
      made->logit_scale = number_or(fields, "logit_scale", 1);
    }
    made->matrix = keeper_.optional_matrix("router", field(fields, "matrix"));
    return made;
  }

  Made experts(const py::dict& fields) {
    auto made = std::make_unique<ExpertsOperation>();
    const size_t rows = count_at(fields, "rows"), chosen = made->chosen = count_at(fields, "chosen");
    made->experts = count_at(fields, "experts");
    const bool sent = py::len(field(fields, "inputs")) == 1;
    const size_t width = has(fields, "width") ? count_at(fields, "width") : spec().hidden;
    made->reads = sent ? reads(fields, {width + 2 * chosen}) : reads(fields, {width, chosen, chosen});
    made->leaves = leaves(fields, width);
    if (has(fields, "sum")) made->leaves.push_back({text_at(fields, "sum"), spec().hidden});
    if (has(fields, "slots")) made->slots = numbers(fields, "slots", made->experts + 1);
    made->turns = flag_at(fields, "turns");
    if (has(fields, "late")) made->late = numbers(fields, "late", made->experts);
    if (has(fields, "arrived")) made->arrived = fields["arrived"].cast<std::shared_ptr<Event>>();
    made->own = {0, made->experts};
    if (has(fields, "own")) {
      const auto [begin, end] = field(fields, "own").cast<std::pair<long long, long long>>();
      made->own = {count_of("own", begin, 0), count_of("own", end, 0)};
    }
    made->activation = activation_at(fields);
    const py::object limit = field(fields, "limit");
    made->limit = limit.is_none() ? std::numeric_limits<float>::infinity() : limit.cast<float>();
    made->input_scaled = flag_at(fields, "input_scaled");
    made->gate = expert_weights("gate", fields, rows, width);
    made->up = expert_weights("up", fields, rows, width);
    made->down = expert_weights("down", fields, width, rows);
    if (made->up) made->activations = activations_of(text_at(field(fields, "up").cast<py::dict>(), "activations"));
    return made;
  }

  // One matrix of every expert, of (rows, columns).
  std::optional<ExpertWeights> expert_weights(const char* name, const py::dict& operation, size_t rows,
                                              size_t columns) {
    const py::object value = field(operation, name);
    if (value.is_none()) return std::nullopt;
    const auto fields = value.cast<py::dict>();
    const std::string format = text_at(fields, "format");
    ExpertWeights made;
    for (const py::handle each : field(fields, "weights").cast<py::list>()) {
      if (each.is_none()) {
        made.weights.push_back(nullptr);
        continue;
      }
      const Buffer& buffer = keeper_.keep(py::reinterpret_borrow<py::object>(each));
      made.weights.push_back(
          matrix_of(name, buffer, format, static_cast<long long>(rows), static_cast<long long>(columns)).weights);
    }
    made.matrix = {nullptr, stored_format_of(format), rows, columns,
                   keeper_.floats(fields, "bias", product({count_at(operation, "experts"), rows}))};
    made.point();
    return made;
  }

  Made member(const py::dict&) { return std::make_unique<MemberOperation>(); }

  Made combine(const py::dict& fields) {
    auto made = std::make_unique<CombineOperation>();
    made->reads = reads(fields, {spec().hidden});
    made->leaves = leaves(fields, spec().hidden);
    return made;
  }

  Made row_gate(const py::dict& fields) {
    auto made = std::make_unique<RowGateOperation>();
    made->reads = reads(fields, {spec().hidden, count_at(fields, "rows")});
    made->leaves = leaves(fields, 1);
    made->matrix = keeper_.optional_matrix(text_at(fields, "name"), field(fields, "matrix"));
    return made;
  }

  Made value_norm(const py::dict& fields) {
    auto made = std::make_unique<ValueNormOperation>();
    const size_t width = count_at(fields, "width");
    made->reads = reads(fields, {width});
    made->leaves = leaves(fields, width);
    made->weights = keeper_.norm(fields, text_at(fields, "name"), field(fields, "weights"), width);
    return made;
  }

  Made latent_append(const py::dict& fields) {
    auto made = std::make_unique<LatentAppendOperation>();
    const Attention& s = made->shape = shape(fields);
    made->plain = count_at(fields, "plain"), made->rotated = count_at(fields, "rotated");
    made->reads = reads(fields, {product({s.heads, made->plain + made->rotated}), s.head_dim});
    made->leaves = leaves(fields, s.q_width());
    made->factor = field(fields, "factor").cast<float>();
    made->neighbours = choice_at<bool>(fields, "pairs", {{"interleaved", true}, {"half", false}});
    if (made->rotated < s.head_dim)
      made->norm = keeper_.norm(fields, text_at(fields, "name"), field(fields, "weights"), made->latent());
    made->cos = keeper_.floats(fields, "cos", product({spec().context, made->rotated / 2}));
    made->sin = keeper_.floats(fields, "sin", product({spec().context, made->rotated / 2}));
    made->caches = block_caches(keeper_, s, fields);
    return made;
  }

  Made grouped(const py::dict& fields) {
    auto made = std::make_unique<GroupedOperation>();
    made->groups = count_at(fields, "groups");
    made->reads = reads(fields, {product({made->groups, count_at(fields, "taken")})});
    made->leaves = leaves(fields, product({made->groups, count_at(fields, "given")}));
    made->matrix = keeper_.optional_matrix(text_at(fields, "name"), field(fields, "matrix"));
    return made;
  }

  Made convolution(const py::dict& fields) { return convolution_of(keeper_, fields); }
  Made recurrence(const py::dict& fields) { return recurrence_of(keeper_, fields); }
  Made gated_norm(const py::dict& fields) { return gated_norm_of(keeper_, fields); }

  Keeper keeper_;
  Format format_;
  Activations attention_;
};

}  // namespace

void parse_operations(Keeper keeper, const py::list& operations, Format format, Activations attention) {
  Operations parser(keeper, format, attention);
  for (const py::handle each : operations) keeper.spec().operations.push_back(parser.parse(each.cast<py::dict>()));
}

}  // namespace helm
