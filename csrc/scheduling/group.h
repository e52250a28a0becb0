// Group: the requests that decode on the accelerator. All of them advance in every pass, so nothing is kept by request
// and step: contexts are relative to a common count of steps.
#pragma once
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "scheduling/sequences.h"

namespace helm::scheduling {

class Group {
 public:
  Group(Sequences& sequences, int64_t block) : sequences_(sequences), residues_(static_cast<size_t>(block)) {}

  const std::vector<Id>& members() const { return members_; }  // in no order that means anything
  int64_t count() const { return static_cast<int64_t>(members_.size()); }
  int64_t kv() const { return kv_; }  // tokens cached by all of them
  int64_t steps() const { return steps_; }

  // `id` has `cached` tokens and yields `output - produced` more.
  void join(Id id);
  // Gives `id` its own counts back.
  void leave(Id id);

  // Blocks that the next `steps` steps need.
  int64_t growth(int64_t steps) const;
  // Most steps that `free` blocks allow.
  int64_t steps_within(int64_t free) const;
  // Steps until the next last token; at least one member.
  int64_t steps_to_end();

  void step(int64_t steps) { steps_ += steps, kv_ += steps * count(); }
  // A member whose last token has come, the first by number, or -1 for none.
  Id finished();

 private:
  using End = std::pair<int64_t, Id>;

  int64_t block() const { return static_cast<int64_t>(residues_.size()); }
  // Members that need a block in step `ahead`, 1 for the next one: those whose cache then ends with a full block.
  int64_t growing(int64_t ahead) const { return residues_[static_cast<size_t>(wrapped(1 - steps_ - ahead))]; }
  int64_t wrapped(int64_t offset) const { return (offset % block() + block()) % block(); }
  void forget_gone();

  Sequences& sequences_;
  std::vector<Id> members_;
  std::vector<int64_t> residues_;                                    // members by cached minus steps, modulo a block
  std::priority_queue<End, std::vector<End>, std::greater<>> ends_;  // those that left are forgotten when they come up
  int64_t steps_ = 0, kv_ = 0;
};

}  // namespace helm::scheduling
