#include "cost.h"

#include <algorithm>

namespace helm::scheduling {
namespace {

double at(const Line& line, int64_t count) { return line(static_cast<double>(count)); }

double prefill_attention(const Cost& cost, const Work& work) {
  return std::max(at(cost.prefill_compute, work.pairs), at(cost.prefill_read, work.prompt_kv));
}

double transfers(const Cost& cost, const Work& work) {
  return at(cost.to_host, work.cpu_requests) + at(cost.to_device, work.cpu_requests);
}

// One layer on the accelerator.
double device_layer(const Cost& cost, const Work& work) {
  return linear_stage(cost, work) + device_attention(cost, work);
}

double out_of_layer(const Cost& cost, const Work& work) {
  return at(cost.to_host, work.cpu_requests) + at(cost.swap_out, work.swap_out);
}

double into_layer(const Cost& cost, const Work& work) {
  return at(cost.to_device, work.cpu_requests) + at(cost.swap_in, work.swap_in);
}

// All layers over the busier direction of the link.
double link(const Cost& cost, const Work& work) {
  return cost.layers * std::max(out_of_layer(cost, work), into_layer(cost, work));
}

double link(const Cost& cost, const Work& first, const Work& second) {
  return cost.layers * std::max(out_of_layer(cost, first) + out_of_layer(cost, second),
                                into_layer(cost, first) + into_layer(cost, second));
}

Times gpu_only(const Cost& cost, const Work& work) {
  const double gpu = cost.layers * device_layer(cost, work) + at(cost.ends, work.outputs);
  const double moved = link(cost, work);
  return {std::max(gpu, moved), gpu, 0.0, moved};
}

Times simple(const Cost& cost, const Work& work) {
  const double gpu = device_layer(cost, work);
  const double cpu = host_attention(cost, work), ends = at(cost.ends, work.outputs), moved = link(cost, work);
  const double seconds = cost.layers * (gpu + transfers(cost, work) + cpu) + ends;
  return {std::max(seconds, moved), cost.layers * gpu + ends, cost.layers * cpu, moved};
}

// One layer of two sub-batches in turns (NEO-10 with transfers): seconds, and how long each side works. The longest
// cycle of what waits for each other: the accelerator, the host, each half's own way, both halves' ways over two layers.
Times two_layers(const Cost& cost, const Work& first, const Work& second) {
  const double linear0 = linear_stage(cost, first), linear1 = linear_stage(cost, second);
  const double attention = device_attention(cost, first), gpu = linear0 + linear1 + attention;
  const double host0 = host_attention(cost, first), host1 = host_attention(cost, second), cpu = host0 + host1;
  const double there0 = at(cost.to_host, first.cpu_requests), back0 = at(cost.to_device, first.cpu_requests);
  const double there1 = at(cost.to_host, second.cpu_requests), back1 = at(cost.to_device, second.cpu_requests);
  const double turn = std::max(attention + there0 + back1, there1 + back0) + linear0 + linear1 + cpu;
  const double way0 = linear0 + there0 + host0 + back0, way1 = linear1 + there1 + host1 + back1;
  return {std::max({gpu, cpu, way0, way1, turn / 2}), gpu, cpu, 0.0};
}

Work without(Work work, const Work& part) {
  work.tokens -= part.tokens, work.cpu_requests -= part.cpu_requests, work.cpu_kv -= part.cpu_kv;
  return work;
}

Times pipelined(const Cost& cost, const Load& load) {
  const auto& [first, second] = load.half;
  const double late = load.done_layers, rest = cost.layers - late;
  const Times all = two_layers(cost, first, second);
  const Times fewer = late > 0 ? two_layers(cost, first, without(second, load.cohort)) : Times{};
  const double ends = at(cost.ends, first.outputs + second.outputs), moved = link(cost, first, second);
  const double seconds = rest * all.seconds + late * fewer.seconds + ends;
  return {std::max(seconds, moved), rest * all.gpu + late * fewer.gpu + ends, rest * all.cpu + late * fewer.cpu, moved};
}

Times deferred(const Cost& cost, const Load& load) {
  const Work &work = load.half[0], &cohort = load.cohort;
  Times times = gpu_only(cost, work);
  times.gpu += at(cost.linear, work.tokens + cohort.tokens) - at(cost.linear, work.tokens);
  times.seconds = std::max(times.gpu, times.link);
  if (cohort.cpu_requests == 0) return times;
  times.cpu = host_attention(cost, cohort);
  times.link += transfers(cost, cohort);
  return times;
}

}  // namespace

double linear_stage(const Cost& cost, const Work& work) { return at(cost.linear, work.tokens); }

double device_attention(const Cost& cost, const Work& work) {
  return at(cost.gpu_attention, work.gpu_kv) + prefill_attention(cost, work);
}

double host_attention(const Cost& cost, const Work& work) {
  return at(cost.cpu_attention, work.cpu_kv) + cost.cpu_request * static_cast<double>(work.cpu_requests);
}

double host_layer(const Cost& cost, const Work& work) { return transfers(cost, work) + host_attention(cost, work); }

Times time_of(const Cost& cost, Kind kind, const Load& load) {
  switch (kind) {
    case Kind::simple: return simple(cost, load.half[0]);
    case Kind::pipelined: return pipelined(cost, load);
    case Kind::deferred: return deferred(cost, load);
    case Kind::gpu_only: break;
  }
  return gpu_only(cost, load.half[0]);
}

}  // namespace helm::scheduling
