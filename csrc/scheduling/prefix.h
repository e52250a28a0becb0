// Prefixes: blocks of prompts that stay in the accelerator's cache for requests that begin with the same ones.
#pragma once
#include <cstdint>
#include <list>
#include <unordered_map>

#include "scheduling/sequences.h"

namespace helm::scheduling {

// Blocks by the hash of all tokens up to their end. What nobody holds stays until its room is wanted: the one least
// recently held goes first.
class Prefixes {
 public:
  // Leading blocks of `hashes`, at most `most`, that are here.
  int64_t match(const Hashes& hashes, int64_t most) const;

  // Those among the first `count` of `hashes`, which are here, that nobody holds.
  int64_t idle_among(const Hashes& hashes, int64_t count) const;

  // Holds or releases a block that is here.
  void hold(int64_t hash);
  void release(int64_t hash);

  // A block that has been computed, held by who computed it; false if it was here already: then that one is held.
  bool insert(int64_t hash);

  // Gives up the block that nobody held for longest, and says which; `idle` must not be 0.
  int64_t evict();

  int64_t held() const { return static_cast<int64_t>(entries_.size()) - idle(); }
  int64_t idle() const { return static_cast<int64_t>(unheld_.size()); }

 private:
  struct Entry {
    int64_t holders = 0;
    std::list<int64_t>::iterator unheld;
  };
  std::unordered_map<int64_t, Entry> entries_;  // looked up only: its order is never used
  std::list<int64_t> unheld_;                   // longest first
};

}  // namespace helm::scheduling
