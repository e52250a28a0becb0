// State::check: everything that is kept up to date, computed anew from the requests.
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>

#include "scheduling/state.h"

namespace helm::scheduling {
namespace {

void equal(int64_t kept, int64_t found, const char* what) {
  if (kept == found) return;
  throw std::logic_error(std::string(what) + ": kept " + std::to_string(kept) + ", found " + std::to_string(found));
}

struct Sums {
  std::array<int64_t, 6> count{};         // by status
  std::array<int64_t, 3> kv{}, blocks{};  // by home; kv without those on_gpu
  int64_t shared = 0, group_kv = 0, cpu_kv = 0, growth = 0;
  std::map<int64_t, std::array<int64_t, 2>> cohorts;  // by number: members, tokens that they read
};

}  // namespace

void State::check() const {
  Sums sums;
  for (Id id = sequences_.first(); id < sequences_.next(); ++id) {
    const Sequence& sequence = sequences_[id];
    if (sequence.status == Status::ended) continue;
    const int64_t has = cached(id);
    const auto home = static_cast<size_t>(sequence.home);
    ++sums.count[static_cast<size_t>(sequence.status)];
    sums.blocks[home] += limits_.blocks(has) - sequence.shared * hash_blocks();
    sums.shared += sequence.shared;
    if (sequence.status == Status::on_cpu) sums.cpu_kv += has;
    if (sequence.status == Status::on_gpu) {
      sums.group_kv += has, sums.growth += has % limits_.block == 0;
    } else {
      sums.kv[home] += has;
    }
    if (produced(id) >= sequence.output) throw std::logic_error("a request has all its tokens and has not ended");
    if (sequence.cohort == 0) continue;
    sums.blocks[home] += limits_.blocks(has + 1) - limits_.blocks(has);
    auto& [members, kv] = sums.cohorts[sequence.cohort];
    ++members, kv += has + 1;
  }
  const auto of = [&](Status status) { return sums.count[static_cast<size_t>(status)]; };
  equal(static_cast<int64_t>(waiting_.size()), of(Status::waiting), "requests waiting");
  equal(static_cast<int64_t>(prompting_.size()), of(Status::prompting), "prompts begun");
  equal(static_cast<int64_t>(swapped_.size()), of(Status::swapped), "requests swapped");
  equal(static_cast<int64_t>(cpu_.size()), of(Status::on_cpu), "requests on the host");
  equal(group_.count(), of(Status::on_gpu), "requests on the accelerator");
  equal(group_.kv(), sums.group_kv, "their tokens");
  equal(group_.growth(1), sums.growth, "blocks that their next tokens need");
  equal(cpu_kv_, sums.cpu_kv, "tokens of those on the host");
  equal(static_cast<int64_t>(cohorts_.all().size()), static_cast<int64_t>(sums.cohorts.size()), "cohorts");
  for (const Cohort& cohort : cohorts_.all()) {
    const auto [members, kv] = sums.cohorts[cohort.number];
    equal(static_cast<int64_t>(cohort.members.size()), members, "requests of a cohort");
    equal(cohort.work.cpu_requests, members, "those whose attention is counted");
    equal(cohort.work.cpu_kv, kv, "tokens that they read");
  }
  equal(kv_[1], sums.kv[1], "other tokens on the accelerator");
  equal(kv_[2], sums.kv[2], "tokens at the host");
  equal(shared_, sums.shared, "shared blocks");
  const int64_t prefixes = (prefixes_.held() + prefixes_.idle()) * hash_blocks();
  equal(gpu_blocks_.used(), sums.blocks[1] + prefixes, "accelerator blocks");
  equal(cpu_blocks_.used(), sums.blocks[2], "host blocks");
  if (running() > limits_.sequences) throw std::logic_error("more requests run than may");
  if (prefixes_.snapshots() > limits_.snapshots) throw std::logic_error("more snapshots than have room");
  if (limits_.states && of(Status::swapped) > limits_.sequences)
    throw std::logic_error("more states at the host than have room");
}

}  // namespace helm::scheduling
