// Schedules: the passes that a policy chooses from, priced before anything is changed (NEO 3.2, steps 4 to 6).
#pragma once
#include <cstdint>
#include <vector>

#include "scheduling/admission.h"
#include "scheduling/halves.h"
#include "scheduling/schedule.h"

namespace helm::scheduling {

struct Weighing {
  // Tokens from which on a linear stage takes longer with every one more: prompts that nobody misses join up to there,
  // and beyond only where they hide attention on the host (128 in NEO's code).
  int64_t saturation = 0;
  // In x a prompt counts for as many decodes as take as long; else for one request, as in NEO's code.
  bool by_work = true;
};

// Builds schedules from a state in which caches have moved and nothing decodes yet. All of them have everybody on the
// accelerator decode, and differ in prompts and in decodes on the host.
class Schedules {
 public:
  Schedules(const State& state, const Cost& cost, const std::vector<Candidate>& prompts, const Weighing& weighing);

  // Prompts that may join.
  size_t prompts() const { return prompts_.size(); }

  // Prompts and decodes on the accelerator.
  void gpu_only(Schedule& into) const;
  // Decodes on the host in order of arrival there, as long as both halves hide them, those of cohorts first
  // (APEX-26); then fewer prompts, as few as still hide them. `share`: see Halves. `all`: the same with all prompts.
  void pipelined(Schedule& into, double share = 1, Schedule* all = nullptr) const;
  // All decodes on the host that there is room for, hidden or not, each in the half that is better off (FastDecode+).
  void balanced(Schedule& into) const;
  // All of them, in turns to one half and the other (NEO-04).
  void symmetric(Schedule& into) const;
  // All of them in turn with everything else.
  void simple(Schedule& into) const;
  // As many of them as raise the rate.
  void paying(Schedule& into) const;
  // Cohorts go on, and where there may be more of them another begins: as many as the host attends to during a pass of
  // decodes, all cohorts together (APEX-19, APEX-24, APEX-40). `begins`: whether one may.
  void deferred(Schedule& into, double share = 1, bool begins = true) const;

  // Makes the pass.
  static void make(State& state, const Cost& believed, const std::vector<Candidate>& prompts, const Schedule& schedule);

 private:
  void begin(Schedule& into, Kind kind, size_t prompts) const;
  void price(Schedule& into) const;
  Work first(size_t prompts) const;
  size_t needed() const;
  int64_t cpu_blocks() const;
  int64_t tokens(const Schedule& into) const;
  void resume(Schedule& into, Halves& halves, bool hidden) const;
  static void put(Schedule& into, Halves& halves, int half, Id id, int64_t cached);
  void finish(Schedule& into, const Halves& halves) const;
  double window() const;
  double worth(size_t prompts) const;
  double dearer(size_t prompts) const;
  double device_seconds(const Work& work) const;
  template <typename Takes>
  void scan(const Schedule& into, Takes takes) const;

  const State& state_;
  const Cost& cost_;
  const std::vector<Candidate>& prompts_;
  int64_t saturation_;
  Work decodes_;       // on the accelerator, with what has been swapped
  double decode_ = 0;  // seconds of one of them, if prompts are weighed by it
};

}  // namespace helm::scheduling
