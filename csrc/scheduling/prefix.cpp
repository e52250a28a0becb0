#include "scheduling/prefix.h"

#include <algorithm>
#include <cassert>

namespace helm::scheduling {

int64_t Prefixes::here(const Hashes& hashes, int64_t most) const {
  const int64_t end = std::min(most, hashes.count);
  int64_t found = 0;
  while (found < end && entries_.count(hashes.at[found]) > 0) ++found;
  return found;
}

int64_t Prefixes::match(const Hashes& hashes, int64_t most) const {
  int64_t found = here(hashes, most);
  while (states_ && found > 0 && !has_snapshot(hashes.at[found - 1])) --found;
  return found;
}

int64_t Prefixes::idle_among(const Hashes& hashes, int64_t count) const {
  return std::count_if(hashes.at, hashes.at + count, [&](int64_t hash) { return entries_.at(hash).holders == 0; });
}

void Prefixes::hold(int64_t hash) {
  Entry& entry = entries_.at(hash);
  if (entry.holders++ == 0) unheld_.erase(entry.unheld);
}

void Prefixes::release(int64_t hash) {
  Entry& entry = entries_.at(hash);
  assert(entry.holders > 0);
  if (--entry.holders == 0) entry.unheld = unheld_.insert(unheld_.end(), hash);
}

bool Prefixes::insert(int64_t hash) {
  const auto [place, fresh] = entries_.try_emplace(hash);
  if (fresh) {
    place->second.holders = 1;
  } else {
    hold(hash);
  }
  return fresh;
}

int64_t Prefixes::evict() {
  const int64_t hash = unheld_.front();
  if (const auto snapshot = entries_.at(hash).snapshot) snapshots_.erase(*snapshot);
  entries_.erase(hash);
  unheld_.pop_front();
  return hash;
}

void Prefixes::keep(int64_t hash) {
  Entry& entry = entries_.at(hash);
  assert(!entry.snapshot);
  entry.snapshot = snapshots_.insert(snapshots_.end(), hash);
}

void Prefixes::use(int64_t hash) { snapshots_.splice(snapshots_.end(), snapshots_, *entries_.at(hash).snapshot); }

int64_t Prefixes::forget() {
  const int64_t hash = snapshots_.front();
  entries_.at(hash).snapshot.reset();
  snapshots_.pop_front();
  return hash;
}

bool Prefixes::has_snapshot(int64_t hash) const {
  const auto entry = entries_.find(hash);
  return entry != entries_.end() && entry->second.snapshot.has_value();
}

}  // namespace helm::scheduling
