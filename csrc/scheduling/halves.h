// Halves: two sub-batches that are filled with decodes on the host while the accelerator hides them (NEO 3.2, step 4).
#pragma once
#include <array>
#include <cstdint>

#include "scheduling/cost.h"

namespace helm::scheduling {

// Keeps T_ca1 <= T_l0 and T_ca0 <= T_l1 + T_ga0, in seconds of one layer: T_ca with what goes over the link for it,
// T_ga0 with the attention of prompts (NEO-15, NEO-21, E-NEO-05).
class Halves {
 public:
  // `first`: decodes on the accelerator and prompts, and what is swapped. `share`: at most that part of the seconds
  // that hide a half's attention are used.
  Halves(const Cost& cost, const Work& first, double share = 1);

  // The half for a decode on top of `cached` tokens, the one whose host has more seconds left if both can hide it; -1:
  // the host would be waited for in either.
  int room_for(int64_t cached) const;
  bool fits(int half, int64_t cached) const { return host_with(half, cached) <= hiding(half); }
  int roomier() const { return slack(0) > slack(1) ? 0 : 1; }
  void put(int half, int64_t cached);

  // Takes a prompt out of the first half, if the attention of both stays hidden and `tokens` are left in the first.
  bool drop(const Work& prompt, int64_t tokens);

  // Seconds of one layer: what hides the attention of `half`, and that attention.
  double hiding(int half) const { return share_ * (half == 0 ? linear_[1] + attention_ : linear_[0]); }
  double host(int half) const { return host_[static_cast<size_t>(half)]; }
  double slack(int half) const { return hiding(half) - host(half); }

  const Load& load() const { return load_; }

 private:
  double host_with(int half, int64_t cached) const;
  void price_first();

  const Cost& cost_;
  double share_;
  Load load_;
  std::array<double, 2> linear_{}, host_{};
  double attention_ = 0;
};

}  // namespace helm::scheduling
