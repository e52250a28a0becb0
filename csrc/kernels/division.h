// Work of different costs, cut into contiguous shares of nearly the same cost.
#pragma once
#include <cstddef>

namespace helm {

// Where a share begins or ends: at unit `unit` of item `item`.
struct Cut {
  size_t item, unit;
};

// The cut below which a share `thread / threads` of the cost lies; cost(i) is that of each of `units` units of item i.
// With thread == threads it is {items, 0}.
template <class Cost>
Cut cut_of(size_t items, size_t units, size_t thread, size_t threads, const Cost& cost) {
  if (thread == threads) return {items, 0};
  size_t total = 0;
  for (size_t i = 0; i < items; ++i) total += cost(i) * units;
  size_t target = total * thread / threads;
  for (size_t i = 0; i < items; ++i) {
    const size_t whole = cost(i) * units;
    if (target < whole) return {i, target / cost(i)};
    target -= whole;
  }
  return {items, 0};
}

// Calls use(item, first, last) for the units [first, last) of every item that lie between two cuts.
template <class Use>
void for_items(Cut begin, Cut end, size_t items, size_t units, const Use& use) {
  for (size_t i = begin.item; i < items && i <= end.item; ++i) {
    const size_t first = i == begin.item ? begin.unit : 0, last = i == end.item ? end.unit : units;
    if (first < last) use(i, first, last);
  }
}

}  // namespace helm
