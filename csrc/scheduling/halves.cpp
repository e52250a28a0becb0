#include "scheduling/halves.h"

namespace helm::scheduling {

Halves::Halves(const Cost& cost, const Work& first, double share) : cost_(cost), share_(share) {
  load_.half[0] = first;
  price_first();
}

void Halves::price_first() {
  linear_[0] = linear_stage(cost_, load_.half[0]);
  attention_ = device_attention(cost_, load_.half[0]);
}

double Halves::host_with(int half, int64_t cached) const {
  Work grown = load_.half[static_cast<size_t>(half)];
  grown.decode_on_cpu(cached);
  return host_layer(cost_, grown);
}

int Halves::room_for(int64_t cached) const {
  const int first = roomier();
  if (fits(first, cached)) return first;
  return fits(1 - first, cached) ? 1 - first : -1;
}

void Halves::put(int half, int64_t cached) {
  const auto at = static_cast<size_t>(half);
  load_.half[at].decode_on_cpu(cached);
  host_[at] = host_layer(cost_, load_.half[at]);
  linear_[at] = linear_stage(cost_, load_.half[at]);
}

bool Halves::drop(const Work& prompt, int64_t tokens) {
  const Work before = load_.half[0];
  load_.half[0] -= prompt;
  price_first();
  if (load_.half[0].tokens >= tokens && slack(0) >= 0 && slack(1) >= 0) return true;
  load_.half[0] = before;
  price_first();
  return false;
}

}  // namespace helm::scheduling
