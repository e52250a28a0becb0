// StreamedWeights.
#include "serving/serving_weights.h"

#include "bindings/bindings.h"

namespace helm {
namespace {

using WeightMove = std::tuple<const Buffer*, long long, const Buffer*, long long, long long>;  // target, source, bytes
using Streamed = std::tuple<long long, long long, long long, std::vector<WeightMove>>;  // operation, set, owner, moves

using Table = std::optional<std::tuple<const Buffer*, std::string, long long, long long, std::vector<const Buffer*>>>;

// Rows come to the places of both sub-batches; without a second one the other's is not used.
std::optional<LookedUp> looked_up(const Table& given) {
  if (!given) return std::nullopt;
  const auto& [table, format, rows, columns, targets] = *given;
  if (targets.empty() || targets.size() > 2) throw py::value_error("rows are looked up for one or two sub-batches");
  const Matrix m = matrix_of("table", *table, format, rows, columns);
  return LookedUp{*table, m.rows, m.columns, m.format, {*targets.front(), *targets.back()}};
}

std::shared_ptr<StreamedWeights> streamed(const std::vector<Streamed>& operations, bool ahead, bool together,
                                          const Table& table) {
  std::vector<StreamedOperation> found;
  for (const auto& [op, set, owner, moves] : operations) {
    found.push_back({count_of("operation", op, 0), count_of("set", set, 0), count_of("owner", owner, 0), {}});
    if (moves.empty()) throw py::value_error("an operation that brings weights has moves");
    for (const auto& [target, to, source, from, bytes] : moves) {
      const size_t size = count_of("bytes", bytes);
      const size_t at = count_of("target offset", to, 0), of = count_of("source offset", from, 0);
      expect_range("target", *target, at, size);
      expect_range("source", *source, of, size);
      found.back().moves.push_back({*target, at, *source, of, size});
    }
  }
  return std::make_shared<StreamedWeights>(std::move(found), ahead, together, looked_up(table));
}

}  // namespace

void register_serving_weights(py::module_& module) {
  py::class_<StreamedWeights, std::shared_ptr<StreamedWeights>>(module, "StreamedWeights")
      .def(py::init(&streamed), py::arg("operations"), py::arg("ahead"), py::arg("together"),
           py::arg("table") = py::none());
}

}  // namespace helm
