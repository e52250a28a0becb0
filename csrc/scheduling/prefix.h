// Prefixes: blocks of prompts that stay in the accelerator's cache for requests that begin with the same ones.
#pragma once
#include <cstdint>
#include <list>
#include <optional>
#include <unordered_map>

#include "scheduling/sequences.h"

namespace helm::scheduling {

// Blocks by the hash of all tokens up to their end. What nobody holds stays until its room is wanted: the one least
// recently held goes first. Behind some blocks is a snapshot, the state of a request that had computed all up to there;
// it goes with its block, or when it is the one least recently used and others are wanted.
class Prefixes {
 public:
  // `states`: whether requests keep states, so that who begins with blocks of others goes on from a snapshot.
  explicit Prefixes(bool states) : states_(states) {}

  // Leading blocks of `hashes`, at most `most`, that are here, and the part of them with which a request may begin.
  int64_t here(const Hashes& hashes, int64_t most) const;
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

  // Snapshots: keeps one behind a block that is here; goes on from one that is there; gives up the one least recently
  // kept or used, and says behind which block it was.
  void keep(int64_t hash);
  void use(int64_t hash);
  int64_t forget();
  bool has_snapshot(int64_t hash) const;
  int64_t snapshots() const { return static_cast<int64_t>(snapshots_.size()); }

  int64_t held() const { return static_cast<int64_t>(entries_.size()) - idle(); }
  int64_t idle() const { return static_cast<int64_t>(unheld_.size()); }

 private:
  struct Entry {
    int64_t holders = 0;
    std::list<int64_t>::iterator unheld;
    std::optional<std::list<int64_t>::iterator> snapshot = {};
  };
  bool states_;
  std::unordered_map<int64_t, Entry> entries_;  // looked up only: its order is never used
  std::list<int64_t> unheld_;                   // longest first
  std::list<int64_t> snapshots_;                // least recently used first
};

}  // namespace helm::scheduling
