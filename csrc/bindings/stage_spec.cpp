#include "bindings/stage_spec.h"

#include "kernels/cache/cache_rows.h"
#include "formats/shape.h"

namespace helm {
namespace {

py::object field(const py::dict& fields, const char* name) {
  if (!fields.contains(name)) throw py::key_error(name);
  return fields[name];
}

size_t count_at(const py::dict& fields, const char* name, long long least = 1) {
  return count_of(name, field(fields, name).cast<long long>(), least);
}

template <class Enum>
Enum choice_at(const py::dict& fields, const char* name, const std::vector<std::pair<const char*, Enum>>& choices) {
  const auto value = field(fields, name).cast<std::string>();
  for (const auto& [text, choice] : choices)
    if (value == text) return choice;
  throw py::value_error(std::string(name) + " has no choice '" + value + "'");
}

// Fills a ParsedSpec, keeping what it points to.
class Parser {
 public:
  explicit Parser(const py::dict& fields) : fields_(fields) {}

  ParsedSpec parse() {
    StageSpec& s = parsed_.spec;
    parse_shape(s);
    parse_positions(s);
    if (const py::object table = field(fields_, "embedding"); !table.is_none())
      s.embedding = s.looked_up ? looked_up(s, table.cast<py::dict>()) : linear("embedding", table);
    for (const py::handle block : field(fields_, "blocks").cast<py::list>())
      s.blocks.push_back(this->block(block.cast<py::dict>()));
    s.final_norm = optional_norm(fields_, "final_norm", s.hidden);
    if (const py::object head = field(fields_, "head"); !head.is_none()) s.head = linear("head", head);
    check(s);
    return std::move(parsed_);
  }

 private:
  void parse_shape(StageSpec& s) {
    s.hidden = count_at(fields_, "hidden");
    s.ffn = count_at(fields_, "ffn");
    s.vocab = count_at(fields_, "vocab");
    s.attention = {count_at(fields_, "heads"), count_at(fields_, "kv_heads"), count_at(fields_, "head_dim"),
                   count_at(fields_, "capacity"), kv_format_of(field(fields_, "kv_format").cast<std::string>())};
    if (fields_.contains("attention_activations"))
      s.attention.bf16 = attention_in_bf16(fields_["attention_activations"].cast<std::string>());
    s.norm = choice_at<NormKind>(fields_, "norm", {{"rms", NormKind::rms}, {"layer", NormKind::layer}});
    s.norm_eps = field(fields_, "norm_eps").cast<float>();
    s.activation = choice_at<Activation>(fields_, "activation",
                                         {{"silu", Activation::silu},
                                          {"relu", Activation::relu},
                                          {"gelu", Activation::gelu},
                                          {"gelu_tanh", Activation::gelu_tanh}});
    s.batch = count_at(fields_, "batch");
    s.max_tokens = count_at(fields_, "max_tokens");
    s.rotary_dim = count_at(fields_, "rotary_dim", 0);
    s.divided =
        fields_.contains("attention") && choice_at<bool>(fields_, "attention", {{"fused", false}, {"divided", true}});
    s.paged = fields_.contains("paged") && fields_["paged"].cast<bool>();
    s.context = fields_.contains("context") ? count_at(fields_, "context") : s.attention.capacity;
    s.looked_up = fields_.contains("looked_up") && fields_["looked_up"].cast<bool>();
    s.sequences = fields_.contains("sequences") ? count_at(fields_, "sequences") : 0;
    s.passing = fields_.contains("passing") ? count_at(fields_, "passing", 0) : 0;
    s.gated = gated();
    product({s.batch, s.max_tokens + s.sequences, s.hidden + s.ffn + s.attention.q_width(), sizeof(float)});
  }

  // As stated, or whether a block has a gate.
  bool gated() const {
    if (fields_.contains("gated")) return fields_["gated"].cast<bool>();
    for (const py::handle block : field(fields_, "blocks").cast<py::list>())
      if (!field(block.cast<py::dict>(), "gate").is_none()) return true;
    return false;
  }

  void parse_positions(StageSpec& s) {
    const size_t half = s.rotary_dim / 2;
    s.cos = half == 0 ? nullptr : floats(fields_, "cos", product({s.context, half}));
    s.sin = half == 0 ? nullptr : floats(fields_, "sin", product({s.context, half}));
    s.positions = floats(fields_, "positions", product({s.context, s.hidden}));
  }

  // The f32 buffer of a field, or null when it is None.
  const float* floats(const py::dict& fields, const char* name, size_t count) {
    const py::object value = field(fields, name);
    if (value.is_none()) return nullptr;
    parsed_.views.push_back(std::make_unique<View>(name, value.cast<py::buffer>(), count, sizeof(float), false));
    return static_cast<const float*>(parsed_.views.back()->data());
  }

  NormWeights norm(const py::dict& parent, const char* name, size_t width) {
    const auto fields = field(parent, name).cast<py::dict>();
    const NormWeights weights{floats(fields, "weight", width), floats(fields, "bias", width)};
    if (weights.weight == nullptr) throw py::value_error(std::string(name) + " needs a weight");
    return weights;
  }

  std::optional<NormWeights> optional_norm(const py::dict& parent, const char* name, size_t width) {
    if (field(parent, name).is_none()) return std::nullopt;
    return norm(parent, name, width);
  }

  Matrix linear(const char* name, const py::object& value) {
    const auto fields = value.cast<py::dict>();
    Matrix m = matrix_of(name, keep(field(fields, "weight")), field(fields, "format").cast<std::string>(),
                         field(fields, "rows").cast<long long>(), field(fields, "columns").cast<long long>());
    m.bias = floats(fields, "bias", m.rows);
    if (fields.contains("first")) m.first = count_at(fields, "first", 0);
    if (fields.contains("activations")) m.activations = activations_of(fields["activations"].cast<std::string>());
    return m;
  }

  // A pass's own rows of the table, one after the other.
  Matrix looked_up(const StageSpec& s, const py::dict& fields) {
    Matrix m;
    m.format = stored_format_of(field(fields, "format").cast<std::string>());
    m.rows = count_at(fields, "rows"), m.columns = count_at(fields, "columns");
    expect_columns(m.format, m.columns);
    m.weights = sized("embedding", field(fields, "weight"), {s.max_tokens, row_size(m.format, m.columns)}).data;
    return m;
  }

  const Buffer& keep(const py::object& value) {
    parsed_.buffers.push_back(value.cast<const Buffer&>());
    return parsed_.buffers.back();
  }

  std::optional<Matrix> optional_linear(const py::dict& parent, const char* name) {
    if (field(parent, name).is_none()) return std::nullopt;
    return linear(name, field(parent, name));
  }

  // Which KV heads an operation computes: all, unless stated.
  Range heads(const py::dict& fields, const char* name) const {
    if (!fields.contains(name) || fields[name].is_none()) return {0, parsed_.spec.attention.kv_heads};
    const auto [begin, end] = fields[name].cast<std::pair<long long, long long>>();
    return {count_of(name, begin, 0), count_of(name, end, 0)};
  }

  // [begin, end) of KV heads, from a pair.
  Range some_heads(const char* name, const py::object& pair) const {
    const auto [first, last] = pair.cast<std::pair<long long, long long>>();
    const Range heads{count_of(name, first, 0), count_of(name, last, 0)};
    if (heads.begin >= heads.end || heads.end > parsed_.spec.attention.kv_heads)
      throw py::value_error(std::string(name) + ": there are no KV heads [" + std::to_string(first) + ", " +
                            std::to_string(last) + ") among " + std::to_string(parsed_.spec.attention.kv_heads));
    return heads;
  }

  // A buffer of all heads, or a list of (begin, end, buffer) of some each.
  HeadCaches cache(const py::dict& fields, const char* name) {
    const Attention& a = parsed_.spec.attention;
    HeadCaches found;
    const py::object value = field(fields, name);
    if (value.is_none()) return found;
    if (!py::isinstance<py::list>(value)) {
      const Buffer& buffer = sized(name, value, {a.kv_heads, a.capacity, row_size(a.format, a.head_dim)});
      return caches_in(a, buffer.data, 0, a.kv_heads);
    }
    found.resize(a.kv_heads);
    for (const py::handle part : value.cast<py::list>()) {
      const auto [first, last, content] = part.cast<std::tuple<py::object, py::object, py::object>>();
      const Range heads = some_heads(name, py::make_tuple(first, last));
      const Buffer& buffer =
          sized(name, content, {heads.end - heads.begin, a.capacity, row_size(a.format, a.head_dim)});
      const HeadCaches each = caches_in(a, buffer.data, heads.begin, heads.end);
      std::copy(each.begin() + heads.begin, each.begin() + heads.end, found.begin() + heads.begin);
    }
    return found;
  }

  // Of all heads, the rows behind those of the cache that keys or values pass through; or none.
  HeadCaches passing(const py::dict& fields, const char* name) {
    if (parsed_.spec.passing == 0 || field(fields, "keys").is_none()) return {};
    Attention a = parsed_.spec.attention;
    a.capacity = parsed_.spec.passing;
    const Buffer& buffer = sized(name, field(fields, name), {a.kv_heads, a.capacity, row_size(a.format, a.head_dim)});
    return caches_in(a, buffer.data, 0, a.kv_heads);
  }

  // Where else new rows of some heads are kept; nothing when the field is missing.
  KeptHeads kept(const py::dict& fields, const char* name) {
    const Attention& a = parsed_.spec.attention;
    KeptHeads found;
    if (!fields.contains(name)) return found;
    found.resize(a.kv_heads);
    for (const py::handle part : fields[name].cast<py::list>()) {
      const auto p = part.cast<py::dict>();
      const Range heads = some_heads(name, field(p, "heads"));
      const bool groups = field(p, "groups").cast<bool>(), by_token = field(p, "by_token").cast<bool>();
      const size_t count = heads.end - heads.begin, rows = parsed_.spec.context;
      const size_t row = groups ? q4_row_size(a.head_dim) : row_size(a.format, a.head_dim);
      char* data = static_cast<char*>(sized(name, field(p, "rows"), {count, rows, row}).data);
      const size_t token = by_token ? count * row : row, head = by_token ? row : rows * row;
      for (size_t h = 0; h < count; ++h) found[heads.begin + h] = {data + h * head, count * rows * row, token, groups};
    }
    return found;
  }

  // A buffer with room for the product of `factors` for every sequence.
  const Buffer& sized(const char* name, const py::object& value, std::initializer_list<size_t> factors) {
    const Buffer& buffer = keep(value);
    expect_size(name, buffer, product({parsed_.spec.batch, product(factors)}));
    return buffer;
  }

  BlockSpec block(const py::dict& fields) {
    const StageSpec& s = parsed_.spec;
    const auto part = [&](const char* name) { return optional_linear(fields, name); };
    BlockSpec b;
    b.norm1 = optional_norm(fields, "norm1", s.hidden);
    b.norm2 = optional_norm(fields, "norm2", s.hidden);
    b.q_norm = optional_norm(fields, "q_norm", s.attention.head_dim);
    b.k_norm = optional_norm(fields, "k_norm", s.attention.head_dim);
    b.q = part("q"), b.k = part("k"), b.v = part("v"), b.o = part("o");
    b.gate = part("gate"), b.up = part("up"), b.down = part("down");
    b.keys = cache(fields, "keys");
    b.values = cache(fields, "values");
    b.passing_keys = passing(fields, "passing_keys");
    b.passing_values = passing(fields, "passing_values");
    b.kept_keys = kept(fields, "kept_keys");
    b.kept_values = kept(fields, "kept_values");
    b.scores_heads = heads(fields, "scores_heads");
    b.weighted_heads = heads(fields, "wv_heads");
    return b;
  }

  const py::dict& fields_;
  ParsedSpec parsed_;
};

}  // namespace

ParsedSpec parse_spec(const py::dict& fields) { return Parser(fields).parse(); }

}  // namespace helm
