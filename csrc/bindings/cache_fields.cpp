#include "bindings/cache_fields.h"

#include "formats/shape.h"
#include "kernels/cache/cache_rows.h"

namespace helm {
namespace {

// [begin, end) of KV heads, from a pair.
Range some_heads(const Attention& s, const char* name, const py::object& pair) {
  const auto [first, last] = pair.cast<std::pair<long long, long long>>();
  const Range heads{count_of(name, first, 0), count_of(name, last, 0)};
  if (heads.begin >= heads.end || heads.end > s.kv_heads)
    throw py::value_error(std::string(name) + ": there are no KV heads [" + std::to_string(first) + ", " +
                          std::to_string(last) + ") among " + std::to_string(s.kv_heads));
  return heads;
}

// A buffer of all heads, or a list of (begin, end, buffer) of some each.
HeadCaches cache(Keeper& keeper, const Attention& a, const py::dict& fields, const char* name) {
  HeadCaches found;
  const py::object value = field(fields, name);
  if (value.is_none()) return found;
  if (!py::isinstance<py::list>(value)) {
    const Buffer& buffer = keeper.sized(name, value, {a.kv_heads, a.capacity, row_size(a.format, a.head_dim)});
    return caches_in(a, buffer.data, 0, a.kv_heads);
  }
  found.resize(a.kv_heads);
  for (const py::handle part : value.cast<py::list>()) {
    const auto [first, last, content] = part.cast<std::tuple<py::object, py::object, py::object>>();
    const Range heads = some_heads(a, name, py::make_tuple(first, last));
    const Buffer& buffer =
        keeper.sized(name, content, {heads.end - heads.begin, a.capacity, row_size(a.format, a.head_dim)});
    const HeadCaches each = caches_in(a, buffer.data, heads.begin, heads.end);
    std::copy(each.begin() + heads.begin, each.begin() + heads.end, found.begin() + heads.begin);
  }
  return found;
}

// Of all heads, the rows behind those of the cache that keys or values pass through; or none.
HeadCaches passing(Keeper& keeper, const Attention& shape, const py::dict& fields, const char* name) {
  if (keeper.spec().passing == 0 || field(fields, "keys").is_none()) return {};
  Attention a = shape;
  a.capacity = keeper.spec().passing;
  const Buffer& buffer =
      keeper.sized(name, field(fields, name), {a.kv_heads, a.capacity, row_size(a.format, a.head_dim)});
  return caches_in(a, buffer.data, 0, a.kv_heads);
}

}  // namespace

BlockCaches block_caches(Keeper& keeper, const Attention& s, const py::dict& fields) {
  BlockCaches found;
  found.keys = cache(keeper, s, fields, "keys");
  found.values = cache(keeper, s, fields, "values");
  found.passing_keys = passing(keeper, s, fields, "passing_keys");
  found.passing_values = passing(keeper, s, fields, "passing_values");
  return found;
}

KeptHeads kept_heads(Keeper& keeper, const Attention& a, const py::dict& fields, const char* name) {
  KeptHeads found;
  if (!fields.contains(name)) return found;
  found.resize(a.kv_heads);
  for (const py::handle part : fields[name].cast<py::list>()) {
    const auto p = part.cast<py::dict>();
    const Range heads = some_heads(a, name, field(p, "heads"));
    const bool groups = field(p, "groups").cast<bool>(), by_token = field(p, "by_token").cast<bool>();
    const size_t count = heads.end - heads.begin, rows = keeper.spec().context;
    const size_t row = groups ? q4_row_size(a.head_dim) : row_size(a.format, a.head_dim);
    char* data = static_cast<char*>(keeper.sized(name, field(p, "rows"), {count, rows, row}).data);
    const size_t token = by_token ? count * row : row, head = by_token ? row : rows * row;
    for (size_t h = 0; h < count; ++h) found[heads.begin + h] = {data + h * head, count * rows * row, token, groups};
  }
  return found;
}

}  // namespace helm
