#include "scheduling/results.h"

#include <pybind11/numpy.h>

#include <memory>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace helm::scheduling {
namespace {

// An array that owns the vector: nothing is copied.
template <typename T>
py::array_t<T> array(std::vector<T> values) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  const auto size = static_cast<py::ssize_t>(kept->size());
  T* data = kept->data();
  const py::capsule owner(kept.release(), [](void* memory) { delete static_cast<std::vector<T>*>(memory); });
  return py::array_t<T>(size, data, owner);
}

// A value of every replica.
template <typename Get>
auto by_replica(const std::vector<Records>& records, Get get) {
  std::vector<std::decay_t<decltype(get(records.front()))>> values;
  for (const Records& each : records) values.push_back(get(each));
  return array(std::move(values));
}

// The lists of all replicas, one after the other.
template <typename Get>
auto joined(std::vector<Records>& records, Get get) {
  auto values = std::move(get(records.front()));
  for (size_t i = 1; i < records.size(); ++i) {
    auto& more = get(records[i]);
    values.insert(values.end(), more.begin(), more.end());
  }
  return array(std::move(values));
}

void add_requests(py::dict& into, Served& served) {
  into["arrival_s"] = array(std::move(served.arrival));
  into["started_s"] = array(std::move(served.started));
  into["first_token_s"] = array(std::move(served.first_token));
  into["finish_s"] = array(std::move(served.finish));
  into["produced"] = array(std::move(served.produced));
  into["cpu_tokens"] = array(std::move(served.cpu_tokens));
  into["preemptions"] = array(std::move(served.preemptions));
  into["reused_tokens"] = array(std::move(served.reused));
  into["replica"] = array(std::move(served.replica));
  into["status"] = array(std::move(served.fate));
}

void add_gaps(py::dict& into, std::vector<Records>& records) {
  into["itl_first_s"] = joined(records, [](Records& each) -> auto& { return each.gaps.first; });
  into["itl_step_s"] = joined(records, [](Records& each) -> auto& { return each.gaps.step; });
  into["itl_steps"] = joined(records, [](Records& each) -> auto& { return each.gaps.steps; });
  into["itl_weight"] = joined(records, [](Records& each) -> auto& { return each.gaps.weight; });
  into["itl_on_cpu"] = joined(records, [](Records& each) -> auto& { return each.gaps.on_cpu; });
}

void add_activity(py::dict& into, const std::vector<Records>& records) {
  into["busy_s"] = by_replica(records, [](const Records& each) { return each.activity.busy.seconds; });
  into["gpu_s"] = by_replica(records, [](const Records& each) { return each.activity.busy.gpu; });
  into["cpu_s"] = by_replica(records, [](const Records& each) { return each.activity.busy.cpu; });
  into["link_s"] = by_replica(records, [](const Records& each) { return each.activity.busy.link; });
  into["gpu_kv_s"] = by_replica(records, [](const Records& each) { return each.activity.kv_seconds[1]; });
  into["cpu_kv_s"] = by_replica(records, [](const Records& each) { return each.activity.kv_seconds[2]; });
  into["swapped_out"] = by_replica(records, [](const Records& each) { return each.activity.swapped_out; });
  into["swapped_in"] = by_replica(records, [](const Records& each) { return each.activity.swapped_in; });
  into["jumps"] = by_replica(records, [](const Records& each) { return each.activity.jumps; });
  std::vector<int64_t> passes;
  for (const Records& each : records)
    passes.insert(passes.end(), each.activity.passes.begin(), each.activity.passes.end());
  into["passes"] = array(std::move(passes)).reshape({static_cast<py::ssize_t>(records.size()), py::ssize_t{4}});
}

void add_occupancy(py::dict& into, std::vector<Records>& records) {
  std::vector<int32_t> replica;
  for (size_t i = 0; i < records.size(); ++i)
    replica.insert(replica.end(), records[i].occupancy.at.size(), static_cast<int32_t>(i));
  into["kv_replica"] = array(std::move(replica));
  into["kv_at_s"] = joined(records, [](Records& each) -> auto& { return each.occupancy.at; });
  into["kv_gpu_tokens"] = joined(records, [](Records& each) -> auto& { return each.occupancy.gpu; });
  into["kv_cpu_tokens"] = joined(records, [](Records& each) -> auto& { return each.occupancy.cpu; });
}

void add_events(py::dict& into, std::vector<Records>& records) {
  std::vector<double> times;
  std::vector<uint8_t> what;
  std::vector<int64_t> request;
  for (const Records& each : records)
    for (const Event& event : each.events())
      times.push_back(event.time), what.push_back(static_cast<uint8_t>(event.what)), request.push_back(event.request);
  into["event_s"] = array(std::move(times));
  into["event"] = array(std::move(what));
  into["event_request"] = array(std::move(request));
}

// A column of what policies chose from.
template <typename Get>
auto of_choices(const std::vector<Records>& records, Get get) {
  std::vector<std::decay_t<decltype(get(records.front().choices().front()))>> values;
  for (const Records& each : records)
    for (const Choice& choice : each.choices()) values.push_back(get(choice));
  return array(std::move(values));
}

void add_choices(py::dict& into, const std::vector<Records>& records) {
  into["choice_s"] = of_choices(records, [](const Choice& each) { return each.time; });
  into["choice_kind"] = of_choices(records, [](const Choice& each) { return static_cast<uint8_t>(each.kind); });
  into["choice_made"] = of_choices(records, [](const Choice& each) { return static_cast<uint8_t>(each.made); });
  into["choice_advance"] = of_choices(records, [](const Choice& each) { return each.advance; });
  into["choice_seconds"] = of_choices(records, [](const Choice& each) { return each.seconds; });
  into["choice_hiding0_s"] = of_choices(records, [](const Choice& each) { return each.hiding[0]; });
  into["choice_hiding1_s"] = of_choices(records, [](const Choice& each) { return each.hiding[1]; });
  into["choice_host0_s"] = of_choices(records, [](const Choice& each) { return each.host[0]; });
  into["choice_host1_s"] = of_choices(records, [](const Choice& each) { return each.host[1]; });
}

}  // namespace

py::dict results(Simulated done) {
  const bool lost = done.served.lost();
  const int64_t missed = done.served.missed;
  py::dict found;
  add_requests(found, done.served);
  add_gaps(found, done.records);
  add_activity(found, done.records);
  add_occupancy(found, done.records);
  add_events(found, done.records);
  add_choices(found, done.records);
  found["lost"] = lost;
  found["missed"] = missed;
  found["gpu_blocks"] = array(std::move(done.gpu_blocks));
  found["cpu_blocks"] = array(std::move(done.cpu_blocks));
  return found;
}

}  // namespace helm::scheduling
