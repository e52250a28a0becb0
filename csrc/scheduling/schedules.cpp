#include "scheduling/schedules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace helm::scheduling {

Schedules::Schedules(const State& state, const Cost& cost, const std::vector<Candidate>& prompts,
                     const Weighing& weighing)
    : state_(state), cost_(cost), prompts_(prompts), saturation_(weighing.saturation), decodes_(state.load().half[0]) {
  const int64_t count = state.gpu().count();
  decodes_.tokens += count, decodes_.outputs += count;
  decodes_.gpu_requests += count, decodes_.gpu_kv += state.gpu().kv() + count;
  if (weighing.by_work && count > 0) decode_ = device_seconds(decodes_) / static_cast<double>(count);
}

// ---- What all of them share

Work Schedules::first(size_t prompts) const {
  Work work = decodes_;
  for (size_t i = 0; i < prompts; ++i) work += prompts_[i].work;
  return work;
}

void Schedules::begin(Schedule& into, Kind kind, size_t prompts) const {
  into.kind = kind, into.prompts = prompts;
  into.cpu[0].clear(), into.cpu[1].clear();
  into.load = Load{};
  into.load.half[0] = first(prompts);
  into.hiding = into.host = {};
  into.advance = static_cast<double>(state_.gpu().count());
}

void Schedules::price(Schedule& into) const {
  into.advance += worth(into.prompts);
  into.seconds = time_of(cost_, into.kind, into.load).seconds;
}

// What prompts count for in x: as many decodes as take the accelerator as long as they do in a full pass, where there
// are any to compare with. Passes that take many prompts at once, or hardly more than without them, are worth more.
double Schedules::worth(size_t prompts) const {
  if (prompts == 0) return 0;
  if (decode_ > 0) return (device_seconds(first(prompts)) - device_seconds(decodes_) - dearer(prompts)) / decode_;
  double sum = 0;
  for (size_t i = 0; i < prompts; ++i) sum += prompts_[i].advance;
  return sum;
}

// Seconds that the linear stages of prompts take more here than in a full pass.
double Schedules::dearer(size_t prompts) const {
  const int64_t before = decodes_.tokens, after = first(prompts).tokens, full = state_.limits().batch_tokens;
  const auto seconds = [&](int64_t tokens) { return cost_.linear(static_cast<double>(tokens)); };
  const double share = static_cast<double>(after - before) / static_cast<double>(full);
  return cost_.layers * (seconds(after) - seconds(before) - share * seconds(full));
}

// Seconds of a pass on the accelerator alone.
double Schedules::device_seconds(const Work& work) const {
  Load load;
  load.half[0] = work;
  return time_of(cost_, Kind::gpu_only, load).gpu;
}

// As many prompts as must be, or as fill up the linear stage.
size_t Schedules::needed() const {
  size_t count = prompts_.size();
  int64_t tokens = first(count).tokens;
  while (count > 0 && prompts_[count - 1].optional && tokens - prompts_[count - 1].work.tokens >= saturation_)
    tokens -= prompts_[--count].work.tokens;
  return count;
}

int64_t Schedules::cpu_blocks() const {
  int64_t blocks = state_.free(Home::cpu);
  for (const auto& [chunk, work, advance, optional] : prompts_)
    if (chunk.home == Home::cpu) blocks -= state_.prompt_blocks(chunk.id, chunk.tokens, chunk.home);
  return blocks;
}

// Rows of the linear stage that activations still have room for, beside those that are there.
int64_t Schedules::tokens(const Schedule& into) const {
  const auto decodes = static_cast<int64_t>(into.cpu[0].size() + into.cpu[1].size());
  return state_.limits().batch_tokens - first(prompts_.size()).tokens - decodes;
}

// Offers every decode on the host outside of cohorts to `takes`, as many as `into` has room for. After one that was not
// taken, as long ones are not offered until another was taken: nothing has changed for them.
template <typename Takes>
void Schedules::scan(const Schedule& into, Takes takes) const {
  int64_t blocks = cpu_blocks(), left = tokens(into), refused = std::numeric_limits<int64_t>::max();
  for (const Id id : state_.cpu()) {
    if (left <= 0) return;
    const Sequence& sequence = state_.sequence(id);
    if (sequence.cohort > 0 || sequence.cached >= refused) continue;
    const int64_t wanted = state_.cpu_decode_blocks(id);
    if (wanted > blocks) continue;
    if (takes(id, sequence.cached)) {
      blocks -= wanted, --left, refused = std::numeric_limits<int64_t>::max();
    } else {
      refused = sequence.cached;
    }
  }
}

// ---- One by one

void Schedules::gpu_only(Schedule& into) const {
  begin(into, Kind::gpu_only, needed());
  price(into);
}

void Schedules::pipelined(Schedule& into, double share, Schedule* all) const {
  begin(into, Kind::pipelined, prompts_.size());
  Halves halves(cost_, into.load.half[0], share);
  resume(into, halves, true);
  scan(into, [&](Id id, int64_t cached) {
    const int half = halves.room_for(cached);
    if (half < 0) return false;
    put(into, halves, half, id, cached);
    return true;
  });
  const auto last = [&] { return prompts_[into.prompts - 1]; };
  if (all != nullptr) finish(*all = into, halves);
  while (into.prompts > 0 && last().optional && halves.drop(last().work, saturation_)) --into.prompts;
  finish(into, halves);
}

void Schedules::balanced(Schedule& into) const {
  begin(into, Kind::pipelined, prompts_.size());
  Halves halves(cost_, into.load.half[0]);
  resume(into, halves, false);
  scan(into, [&](Id id, int64_t cached) {
    put(into, halves, halves.roomier(), id, cached);
    return true;
  });
  finish(into, halves);
}

void Schedules::symmetric(Schedule& into) const {
  begin(into, Kind::pipelined, prompts_.size());
  Halves halves(cost_, into.load.half[0]);
  scan(into, [&](Id id, int64_t cached) {
    put(into, halves, into.cpu[0].size() > into.cpu[1].size() ? 1 : 0, id, cached);
    return true;
  });
  finish(into, halves);
}

void Schedules::put(Schedule& into, Halves& halves, int half, Id id, int64_t cached) {
  halves.put(half, cached);
  into.cpu[static_cast<size_t>(half)].push_back(id);
}

// Those of cohorts have some layers behind them, which the second half then does without them: first who has most.
void Schedules::resume(Schedule& into, Halves& halves, bool hidden) const {
  int64_t left = tokens(into);
  for (const Cohort* cohort : state_.cohorts().furthest())
    for (const Id id : cohort->members) {
      const int64_t cached = state_.cached(id);
      if (left <= 0 || (hidden && !halves.fits(1, cached))) continue;
      put(into, halves, 1, id, cached), --left;
      into.load.at(cohort->layers).decode_on_cpu(cached);
    }
}

void Schedules::finish(Schedule& into, const Halves& halves) const {
  into.load.half = halves.load().half;
  into.hiding = {halves.hiding(0), halves.hiding(1)};
  into.host = {halves.host(0), halves.host(1)};
  into.advance += static_cast<double>(into.cpu[0].size() + into.cpu[1].size());
  price(into);
}

void Schedules::simple(Schedule& into) const {
  begin(into, Kind::simple, prompts_.size());
  scan(into, [&](Id id, int64_t cached) {
    into.load.half[0].decode_on_cpu(cached);
    into.cpu[0].push_back(id);
    return true;
  });
  into.advance += static_cast<double>(into.cpu[0].size());
  price(into);
}

// Each one more adds the time of its attention, and of what it adds to other stages: more than it is worth, if the rate
// falls. The shortest are worth most, so whoever is no longer than one that was is offered still.
void Schedules::paying(Schedule& into) const {
  begin(into, Kind::simple, needed());
  price(into);
  scan(into, [&](Id id, int64_t cached) {
    Load grown = into.load;
    grown.half[0].decode_on_cpu(cached);
    const double seconds = time_of(cost_, Kind::simple, grown).seconds;
    if ((into.advance + 1) * into.seconds <= into.advance * seconds) return false;
    into.load = grown, into.seconds = seconds, into.advance += 1;
    into.cpu[0].push_back(id);
    return true;
  });
}

void Schedules::deferred(Schedule& into, double share, bool begins) const {
  begin(into, Kind::deferred, needed());
  Cohorts cohorts = state_.cohorts();
  double host = 0;
  for (const Cohort& cohort : cohorts.all()) host += host_layer(cost_, cohort.work);
  const double most = share * window() / cost_.stages - host;
  Cohort begun;  // its work alone
  if (begins && !cohorts.full())
    scan(into, [&](Id id, int64_t cached) {
      Work grown = begun.work;
      grown.decode_on_cpu(cached);
      if (host_layer(cost_, grown) > most) return false;
      begun.work = grown;
      into.cpu[0].push_back(id);
      return true;
    });
  if (!into.cpu[0].empty()) {
    host += host_layer(cost_, begun.work);
    const int64_t number = cohorts.begin();
    for (const Id id : into.cpu[0]) cohorts.enter(number, id, state_.cached(id));
  }
  cohorts.join(into.load, cost_);
  price(into);
  const double slots = std::max(1.0, std::ceil(cost_.stages * host / into.seconds));
  const double passes = (cost_.layers * slots + cost_.stages) / cost_.stages;
  into.advance += static_cast<double>(cohorts.members()) / passes;
}

// Seconds of a pass of decodes, which most passes of a cohort are; of this one if it has none.
double Schedules::window() const { return device_seconds(state_.gpu().count() > 0 ? decodes_ : first(needed())); }

void Schedules::make(State& state, const Cost& believed, const std::vector<Candidate>& prompts,
                     const Schedule& schedule) {
  if (state.gpu().count() > 0) state.decode_on_gpu();
  for (size_t i = 0; i < schedule.prompts; ++i) {
    const Chunk& chunk = prompts[i].chunk;
    state.prompt(chunk.id, chunk.tokens, chunk.home);
  }
  if (schedule.kind == Kind::deferred) return state.defer(schedule.cpu[0], believed);
  for (const int half : {0, 1})
    for (const Id id : schedule.cpu[static_cast<size_t>(half)]) state.decode_on_cpu(id, half);
  state.set_kind(schedule.kind);
}

}  // namespace helm::scheduling
