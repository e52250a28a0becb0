// What the parts of State share.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "scheduling/state.h"

namespace helm::scheduling {

inline void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

inline void erase(std::vector<Id>& from, Id id) { from.erase(std::find(from.begin(), from.end(), id)); }

inline size_t index(Home home) { return static_cast<size_t>(home); }

}  // namespace helm::scheduling
