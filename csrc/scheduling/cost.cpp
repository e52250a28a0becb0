#include "scheduling/cost.h"

#include <algorithm>

namespace helm::scheduling {
namespace {

double at(const Line& line, int64_t count) { return line(static_cast<double>(count)); }

// All layers over the busier direction of the link, of which each accelerator of a pipeline has one for its own layers.
double over_links(const Cost& cost, double out, double in) { return cost.layers * std::max(out, in) / cost.stages; }

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

double link(const Cost& cost, const Work& work) {
  return over_links(cost, out_of_layer(cost, work), into_layer(cost, work));
}

double link(const Cost& cost, const Work& first, const Work& second) {
  return over_links(cost, out_of_layer(cost, first) + out_of_layer(cost, second),
                    into_layer(cost, first) + into_layer(cost, second));
}

// Seconds of one layer in which the accelerator reads memory: weights, as for one token, and caches of decodes.
double reading(const Cost& cost, const Work& work) {
  return std::min(linear_stage(cost, work), cost.linear(1)) + at(cost.gpu_attention, work.gpu_kv);
}

// Seconds of one layer in which the host reads memory.
double caches(const Cost& cost, const Work& work) { return at(cost.cpu_attention, work.cpu_kv); }

// How many times as long either side takes for what both read at once of one memory.
struct Contention {
  double device = 1, host = 1;
};

// Of parts of a layer that go on at once: `device` and `host` seconds by themselves, of which the accelerator reads for
// `reads` and the host for `caches`. The shorter part lies within the longer, what reads is spread evenly over either.
Contention contention(const Cost& cost, double reads, double device, double caches, double host) {
  if (device <= 0 || host <= 0) return {};
  const double both = std::min(device, host) * (reads / device) * (caches / host);
  return {1 + cost.shared_device * both / device, 1 + cost.shared_host * both / host};
}

Times gpu_only(const Cost& cost, const Work& work) {
  const double gpu = cost.layers * device_layer(cost, work) + at(cost.ends, work.outputs);
  const double moved = link(cost, work);
  return {std::max(gpu, moved), gpu, 0.0, moved};
}

// What a micro-batch waits for in a layer of what all of them have of the host and of links.
double each(const Cost& cost, double all) { return all / cost.stages; }

Times simple(const Cost& cost, const Work& work) {
  const double gpu = device_layer(cost, work);
  const double cpu = host_attention(cost, work), ends = at(cost.ends, work.outputs), moved = link(cost, work);
  const double turn = gpu + each(cost, transfers(cost, work)) + each(cost, cpu);
  const double seconds = cost.layers * std::max(turn, cpu) + ends;
  return {std::max(seconds, moved), cost.layers * gpu + ends, cost.layers * cpu, moved};
}

// One layer of two sub-batches in turns (NEO-10 with transfers): seconds, and how long each side works. The longest
// cycle of what waits for each other: the accelerator, the host, each half's own way, both halves' ways over two
// layers.
Times two_layers(const Cost& cost, const Work& first, const Work& second) {
  double linear0 = linear_stage(cost, first), linear1 = linear_stage(cost, second);
  double attention = device_attention(cost, first);
  double host0 = host_attention(cost, first), host1 = host_attention(cost, second);
  // Each half's attention on the host goes on beside the other's stages on the accelerator.
  const Contention early = contention(cost, reading(cost, first), linear0 + attention, caches(cost, second), host1);
  const Contention late = contention(cost, reading(cost, second), linear1, caches(cost, first), host0);
  linear0 *= early.device, attention *= early.device, host1 *= early.host;
  linear1 *= late.device, host0 *= late.host;
  const int joins = (first.cpu_requests > 0) + (second.cpu_requests > 0);
  const double gpu = linear0 + linear1 + attention + joins * cost.join_device;
  const double cpu = host0 + host1 + joins * cost.join_host;
  const auto over = [&](const Line& line, const Work& half) { return each(cost, at(line, half.cpu_requests)); };
  const double there0 = over(cost.to_host, first), back0 = over(cost.to_device, first);
  const double there1 = over(cost.to_host, second), back1 = over(cost.to_device, second);
  const double turn =
      std::max(attention + there0 + back1, there1 + back0) + linear0 + linear1 + each(cost, host0 + host1);
  const double way0 = linear0 + there0 + each(cost, host0) + back0, way1 = linear1 + there1 + each(cost, host1) + back1;
  return {std::max({gpu, cpu, way0, way1, turn / 2}), gpu, cpu, 0.0};
}

void add(Times& times, double layers, const Times& each) {
  times.seconds += layers * each.seconds, times.gpu += layers * each.gpu, times.cpu += layers * each.cpu;
}

// From layer to layer, the second half with those who have begun by then.
Times pipelined(const Cost& cost, const Load& load) {
  const Work& first = load.half[0];
  Work second = load.half[1];
  for (const Joining& late : load.joining) second -= late.work;
  Times times;
  int from = 0;
  for (const auto& [layers, work] : load.joining) {
    if (layers > from) add(times, layers - from, two_layers(cost, first, second));
    from = layers, second += work;
  }
  if (cost.layers > from) add(times, cost.layers - from, two_layers(cost, first, second));
  const double ends = at(cost.ends, first.outputs + second.outputs);
  times.seconds += ends, times.gpu += ends, times.link = link(cost, first, second);
  times.seconds = std::max(times.seconds, times.link);
  return times;
}

// Rows that join the linear stages of layers make each of them longer: in a pipeline those of one micro-batch, by as
// much as that many rows of all of them would.
double joined_linear(const Cost& cost, const Load& load) {
  double seconds = 0;
  for (size_t i = 0; i < load.joining.size();) {
    const int layers = load.joining[i].layers;
    int64_t rows = load.half[0].tokens;
    for (; i < load.joining.size() && load.joining[i].layers == layers; ++i)
      rows += cost.stages * load.joining[i].work.tokens;
    seconds += at(cost.linear, rows) - at(cost.linear, load.half[0].tokens);
  }
  return seconds;
}

// Of a pass beside which the host attends for the cohorts that join it.
Contention beside_cohorts(const Cost& cost, const Load& load, double gpu) {
  double host = 0, reads = 0;
  for (const auto& [layers, work] : load.joining)
    if (work.cpu_requests > 0) host += host_attention(cost, work), reads += caches(cost, work);
  return contention(cost, reading(cost, load.half[0]), gpu / cost.layers, reads / cost.layers, host / cost.layers);
}

Times deferred(const Cost& cost, const Load& load) {
  Times times = gpu_only(cost, load.half[0]);
  times.gpu += joined_linear(cost, load);
  const Contention longer = beside_cohorts(cost, load, times.gpu);
  times.gpu *= longer.device;
  times.seconds = std::max(times.gpu, times.link);
  for (const auto& [layers, work] : load.joining) {
    if (work.cpu_requests == 0) continue;
    times.cpu += longer.host * host_attention(cost, work), times.link += transfers(cost, work);
  }
  return times;
}

}  // namespace

std::vector<Joining>::iterator Load::place(int layers) {
  return std::find_if(joining.begin(), joining.end(), [&](const Joining& each) { return each.layers > layers; });
}

Work& Load::at(int layers) {
  const auto after = place(layers);
  if (after != joining.begin() && (after - 1)->layers == layers) return (after - 1)->work;
  return joining.insert(after, {layers, {}})->work;
}

double linear_stage(const Cost& cost, const Work& work) { return at(cost.linear, work.tokens); }

double spread(const Cost& cost, const Work& work) {
  return work.tokens < cost.stages ? cost.stages / std::max(1.0, static_cast<double>(work.tokens)) : 1.0;
}

double filling(const Cost& cost, const Load& load) {
  const int64_t tokens = load.half[0].tokens + load.half[1].tokens;
  const auto batches = static_cast<double>(std::clamp<int64_t>(tokens, 1, cost.stages));
  return (cost.stages + batches - 1) / cost.stages;
}

double device_attention(const Cost& cost, const Work& work) {
  const double wide = spread(cost, work);
  const double requests = wide * static_cast<double>(work.gpu_requests), kv = wide * static_cast<double>(work.gpu_kv);
  return decode_attention(cost, requests, kv) + prefill_attention(cost, work);
}

double decode_attention(const Cost& cost, double requests, double kv) {
  return cost.gpu_attention(kv) + cost.gpu_request * requests;
}

double host_attention(const Cost& cost, const Work& work) {
  return at(cost.cpu_attention, work.cpu_kv) + cost.cpu_request * static_cast<double>(work.cpu_requests);
}

double host_seconds(const Cost& cost, Kind kind, const Load& load, double seconds) {
  if (kind != Kind::deferred || cost.shared_host == 0) return seconds;
  const double gpu = gpu_only(cost, load.half[0]).gpu + joined_linear(cost, load);
  return seconds / beside_cohorts(cost, load, gpu).host;
}

double host_layer(const Cost& cost, const Work& work) { return transfers(cost, work) + host_attention(cost, work); }

namespace {

Times stages_of(const Cost& cost, Kind kind, const Load& load) {
  switch (kind) {
    case Kind::simple:
      return simple(cost, load.half[0]);
    case Kind::pipelined:
      return pipelined(cost, load);
    case Kind::deferred:
      return deferred(cost, load);
    case Kind::gpu_only:
      break;
  }
  return gpu_only(cost, load.half[0]);
}

}  // namespace

// States move and are copied before the first layer and behind the last one.
Times time_of(const Cost& cost, Kind kind, const Load& load) {
  const Work& work = load.half[0];
  const double copied = static_cast<double>(work.states_copied) * cost.state_copy;
  const double moved =
      static_cast<double>(work.states_out) * cost.state_out + static_cast<double>(work.states_in) * cost.state_in;
  Times times = stages_of(cost, kind, load);
  times.seconds += copied + moved, times.gpu += copied, times.link += moved;
  return times;
}

}  // namespace helm::scheduling
