#include "scheduling/records.h"

#include <algorithm>
#include <limits>

namespace helm::scheduling {

constexpr double kNever = std::numeric_limits<double>::quiet_NaN();

Served::Served(const Requests& requests, const Target& limits)
    : target(limits), arrival(requests.arrival, requests.arrival + requests.count) {
  const size_t size = arrival.size();
  for (auto* column : {&started, &first_token, &finish}) column->assign(size, kNever);
  for (auto* column : {&produced, &cpu_tokens, &preemptions, &reused}) column->assign(size, 0);
  replica.assign(size, -1);
  fate.assign(size, static_cast<uint8_t>(Fate::unknown));
}

void Gaps::add(const Stretch& run, int64_t requests, bool host) {
  first.push_back(run.first), step.push_back(run.rise);
  steps.push_back(static_cast<int32_t>(run.terms)), weight.push_back(static_cast<int32_t>(requests));
  on_cpu.push_back(host);
}

void Gaps::add(double gap, bool host) {
  const bool same = !first.empty() && first.back() == gap && steps.back() == 1 && on_cpu.back() == host;
  if (same) {
    ++weight.back();
  } else {
    add({gap, 0.0, 1}, 1, host);
  }
}

void Occupancy::add(double now, int64_t on_gpu, int64_t on_cpu) {
  if (!at.empty() && now < at.back() + apart) return;
  at.push_back(now), gpu.push_back(on_gpu), cpu.push_back(on_cpu);
  if (at.size() < kMost) return;
  for (size_t i = 0; i < kMost / 2; ++i) at[i] = at[2 * i], gpu[i] = gpu[2 * i], cpu[i] = cpu[2 * i];
  at.resize(kMost / 2), gpu.resize(kMost / 2), cpu.resize(kMost / 2);
  apart = 2 * (at.back() - at.front()) / static_cast<double>(kMost);
}

void Records::log(double time, Happening what, int64_t request) {
  if (log_) events_.push_back({time, what, request});
}

void Records::arrived(Id id, int64_t request) {
  request_.resize(static_cast<size_t>(id) + 1);
  request_.back() = static_cast<int32_t>(request);
  served_.replica[static_cast<size_t>(request)] = static_cast<int32_t>(replica_);
}

Id Records::number(int64_t request) const {
  return std::lower_bound(request_.begin(), request_.end(), request) - request_.begin();
}

void Records::rejected(int64_t request, double arrival) {
  served_.fate[static_cast<size_t>(request)] = static_cast<uint8_t>(Fate::rejected);
  ++served_.missed;
  log(arrival, Happening::rejected, request);
}

void Records::cancelled(Id id, int64_t produced, double left) {
  const auto row = static_cast<size_t>(request(id));
  served_.fate[row] = static_cast<uint8_t>(Fate::cancelled);
  served_.produced[row] = static_cast<int32_t>(produced);
  served_.finish[row] = left;
  log(left, Happening::cancelled, request(id));
}

void Records::moved(const State& state, double now) {
  const Decision& made = state.decision();
  for (const Id id : made.dropped) {
    ++served_.preemptions[static_cast<size_t>(request(id))];
    log(now, Happening::preempted, request(id));
  }
  for (const Id id : made.out) {
    served_.preemptions[static_cast<size_t>(request(id))] += state.sequence(id).status == Status::swapped;
    log(now, Happening::swapped_out, request(id));
  }
  for (const Id id : made.in) log(now, Happening::swapped_in, request(id));
  activity.swapped_out += state.load().half[0].swap_out, activity.swapped_in += state.load().half[0].swap_in;
}

void Records::chose(const std::vector<const Schedule*>& schedules, double now) {
  if (!log_) return;
  for (const Schedule* each : schedules)
    choices_.push_back(
        {now, each->kind, each == schedules.front(), each->advance, each->seconds, each->hiding, each->host});
}

void Records::passed(const Outcome& outcome, double begin, double end, const Requests& requests) {
  for (const Chunk& chunk : outcome.started) {
    const int64_t row = request(chunk.id);
    served_.started[static_cast<size_t>(row)] = std::max(begin, requests.arrival[row]);
    served_.reused[static_cast<size_t>(row)] = static_cast<int32_t>(chunk.past);
    log(begin, Happening::started, row);
  }
  for (const Id id : outcome.first) {
    served_.first_token[static_cast<size_t>(request(id))] = end;
    log(end, Happening::first_token, request(id));
  }
  for (const auto& [id, gap, on_cpu] : outcome.odd) {
    gaps.add(gap, on_cpu);
    served_.cpu_tokens[static_cast<size_t>(request(id))] += on_cpu;
  }
  for (const Id id : outcome.finished) finished(id, end, requests.output[request(id)]);
}

void Records::finished(Id id, double now, int64_t output) {
  const auto row = static_cast<size_t>(request(id));
  served_.finish[row] = now;
  served_.produced[row] = static_cast<int32_t>(output);
  served_.fate[row] = static_cast<uint8_t>(Fate::finished);
  served_.missed += !served_.target.kept(served_.arrival[row], served_.first_token[row], now, output);
  log(now, Happening::finished, request(id));
}

}  // namespace helm::scheduling
