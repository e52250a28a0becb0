// Sequences: the requests of one replica that have not ended, by number.
#pragma once
#include <cassert>
#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "scheduling/decision.h"

namespace helm::scheduling {

enum class Status : uint8_t {
  waiting,    // nothing cached
  prompting,  // part of its prompt is cached
  on_gpu,     // decodes with attention on the accelerator
  on_cpu,     // decodes with attention on the host
  swapped,    // its cache is at the host, and it waits for room on the accelerator
  ended,
};

// Block hashes of a prompt, in order; what is reused must be equal from the first one on.
struct Hashes {
  const int64_t* at = nullptr;
  int64_t count = 0;
};

struct Sequence {
  int64_t prompt = 0;    // tokens to be cached before the next token comes; after a preemption, with those produced
  int64_t output = 0;    // tokens asked for
  int64_t cached = 0;    // on_gpu: relative to the group's steps, see State::cached
  int64_t produced = 0;  // on_gpu: relative too, see State::produced
  int64_t end = 0;       // on_gpu: the step of the group with which its last token comes
  int64_t place = 0;     // on_gpu: its place among the group's members
  int64_t priority = 0;  // smaller first
  int64_t shared = 0;    // hash blocks that it holds in the prefix cache
  int64_t parting = 0;   // tokens up to which that had its prompt when it began
  Hashes hashes;
  std::shared_ptr<const std::vector<int64_t>> own;               // where limits.keeps: what `hashes` points to
  double last_token = std::numeric_limits<double>::quiet_NaN();  // seconds; kept while it is not on_gpu
  Status status = Status::waiting;
  Home home = Home::none;
  bool started = false;  // has been part of a pass
  int64_t pass = 0;      // the last one that it prompts in, or decodes in on the host
  int64_t cohort = 0;    // on_cpu: the number of the cohort in which its next token is on its way, and has its block
};

// A window over numbers that only grow: memory for those between the oldest that has not ended and the newest.
class Sequences {
 public:
  Id add(const Sequence& sequence) {
    if (next_ - first_ == static_cast<Id>(ring_.size())) grow();
    (*this)[next_] = sequence;
    return next_++;
  }
  void end(Id id) {
    (*this)[id].status = Status::ended;
    (*this)[id].own.reset();
    while (first_ < next_ && (*this)[first_].status == Status::ended) ++first_;
  }
  // Whether `id` has come and not ended.
  bool lives(Id id) const { return first_ <= id && id < next_ && (*this)[id].status != Status::ended; }
  Id first() const { return first_; }
  Id next() const { return next_; }

  Sequence& operator[](Id id) { return ring_[static_cast<size_t>(id) & (ring_.size() - 1)]; }
  const Sequence& operator[](Id id) const { return ring_[static_cast<size_t>(id) & (ring_.size() - 1)]; }

 private:
  void grow() {
    std::vector<Sequence> larger(2 * ring_.size());
    for (Id id = first_; id < next_; ++id) larger[static_cast<size_t>(id) & (larger.size() - 1)] = (*this)[id];
    ring_.swap(larger);
  }

  std::vector<Sequence> ring_ = std::vector<Sequence>(64);  // a power of two
  Id first_ = 0, next_ = 0;
};

}  // namespace helm::scheduling
