#include "scheduling/convert.h"

#include <pybind11/numpy.h>
#include <pybind11/stl.h>

#include <optional>
#include <stdexcept>

namespace py = pybind11;

namespace helm::scheduling {
namespace {

constexpr std::array<const char*, 4> kKinds = {"gpu-only", "simple", "pipelined", "deferred"};

Line line_of(const py::object& line) {
  return Line(line.attr("x").cast<std::vector<double>>(), line.attr("y").cast<std::vector<double>>());
}

int64_t whole(const py::object& from, const char* name) { return from.attr(name).cast<int64_t>(); }

// The values of a column of `count`, kept alive by `arrays`.
template <typename T>
const T* values(const py::dict& columns, const char* name, int64_t count, std::vector<py::object>& arrays) {
  using Array = py::array_t<T, py::array::c_style | py::array::forcecast>;
  auto array = columns[name].cast<Array>();
  if (count >= 0 && array.size() != count) throw std::invalid_argument(std::string(name) + " of another length");
  arrays.push_back(array);
  return array.data();
}

}  // namespace

Cost cost_of(const py::object& cost) {
  const auto line = [&](const char* name) { return line_of(cost.attr(name)); };
  return {cost.attr("layers").cast<int>(),
          cost.attr("stages").cast<int>(),
          line("linear"),
          line("gpu_attention"),
          cost.attr("gpu_request").cast<double>(),
          line("prefill_compute"),
          line("prefill_read"),
          line("cpu_attention"),
          cost.attr("cpu_request").cast<double>(),
          line("to_host"),
          line("to_device"),
          line("swap_out"),
          line("swap_in"),
          line("ends"),
          cost.attr("shared_device").cast<double>(),
          cost.attr("shared_host").cast<double>(),
          cost.attr("join_device").cast<double>(),
          cost.attr("join_host").cast<double>(),
          cost.attr("state_copy").cast<double>(),
          cost.attr("state_out").cast<double>(),
          cost.attr("state_in").cast<double>()};
}

Limits limits_of(const py::object& limits) {
  return {whole(limits, "gpu_tokens"),
          whole(limits, "cpu_tokens"),
          whole(limits, "block"),
          whole(limits, "batch_tokens"),
          whole(limits, "chunk"),
          whole(limits, "sequences"),
          whole(limits, "context"),
          limits.attr("keeps").cast<bool>(),
          limits.attr("ahead").cast<bool>(),
          limits.attr("states").cast<bool>(),
          whole(limits, "snapshots")};
}

Work work_of(const py::object& work) {
  return {whole(work, "tokens"),   whole(work, "outputs"),   whole(work, "gpu_requests"),  whole(work, "gpu_kv"),
          whole(work, "pairs"),    whole(work, "prompt_kv"), whole(work, "cpu_requests"),  whole(work, "cpu_kv"),
          whole(work, "swap_out"), whole(work, "swap_in"),   whole(work, "states_copied"), whole(work, "states_out"),
          whole(work, "states_in")};
}

Kind kind_of(const std::string& name) {
  for (size_t i = 0; i < kKinds.size(); ++i)
    if (name == kKinds[i]) return static_cast<Kind>(i);
  throw std::invalid_argument("no kind of pass " + name);
}

const char* name_of(Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

Target target_of(const py::object& target) {
  if (target.is_none()) return {};
  const auto limit = [&](const char* name) {
    return target.attr(name).cast<std::optional<double>>().value_or(Target::kNone);
  };
  return {limit("ttft"), limit("tpot"), limit("e2e"), limit("per_token"), whole(target, "may_miss")};
}

Options options_of(const py::dict& options) {
  std::map<std::string, Options::Value> values;
  for (const auto& [name, value] : options) values[name.cast<std::string>()] = value.cast<Options::Value>();
  return Options(std::move(values));
}

Columns::Columns(const py::dict& columns) {
  const int64_t count = py::len(columns["arrival_s"]);
  requests.count = count;
  requests.arrival = values<double>(columns, "arrival_s", count, arrays);
  requests.prompt = values<int64_t>(columns, "prompt_tokens", count, arrays);
  requests.output = values<int64_t>(columns, "output_tokens", count, arrays);
  requests.priority = values<int64_t>(columns, "priority", count, arrays);
  requests.cancel = values<double>(columns, "cancel_s", count, arrays);
  requests.hash_start = values<int64_t>(columns, "hash_start", count + 1, arrays);
  requests.hashes = values<int64_t>(columns, "hashes", requests.hash_start[count], arrays);
  requests.hash_block = columns["hash_block"].cast<int64_t>();
  requests.users = py::len(columns["starts_s"]);
  requests.starts = values<double>(columns, "starts_s", requests.users, arrays);
  requests.think = values<double>(columns, "think_s", requests.users > 0 ? count : 0, arrays);
}

}  // namespace helm::scheduling
