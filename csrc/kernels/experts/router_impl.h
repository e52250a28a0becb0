// Routers of experts, for the instruction set whose Simd was included before.
#pragma once
#include "kernels/elementwise/vector_math_impl.h"
#include "kernels/mixers.h"

namespace helm {
namespace {

// The largest number of x[n]; -infinity where all are NaN.
inline float largest_number(const float* x, size_t n) {
  float largest = -HUGE_VALF;
  for (size_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

// x[n] = softmax(x), of finite numbers and -infinity.
inline void softmax_in_place(float* x, size_t n) {
  const V shift = Simd::set(largest_number(x, n));
  for_registers(x, n, [&](V v, size_t, size_t) { return exp_of(Simd::sub(v, shift)); });
  float sum = 0;
  for (size_t i = 0; i < n; ++i) sum += x[i];
  const V factor = Simd::set(1.0f / sum);
  for_registers(x, n, [&](V v, size_t, size_t) { return Simd::mul(v, factor); });
}

inline void scores_of(RouterScore kind, const float* logits, size_t n, float* scores) {
  memcpy(scores, logits, n * sizeof(float));
  if (kind == RouterScore::softmax) softmax_in_place(scores, n);
  if (kind == RouterScore::sigmoid)
    for_registers(scores, n, [](V v, size_t, size_t) { return gated_by_sigmoid(Simd::set(1.0f), v); });
  if (kind == RouterScore::sqrt_softplus) {
    for_registers(scores, n, [](V v, size_t, size_t) { return softplus_of(v); });
    for (size_t i = 0; i < n; ++i) scores[i] = sqrtf(scores[i]);
  }
}

// The best of those offered, in order; of equals what was offered first.
struct Best {
  size_t limit, count;
  float* values;
  int32_t* ids;

  void offer(float value, int32_t id) {
    if (value != value) value = -HUGE_VALF;
    if (count == limit && !(value > values[count - 1])) return;
    size_t at = count < limit ? count++ : count - 1;
    for (; at > 0 && value > values[at - 1]; --at) values[at] = values[at - 1], ids[at] = ids[at - 1];
    values[at] = value, ids[at] = id;
  }
};

inline float group_score(const float* values, size_t n, bool best_two) {
  float first = -HUGE_VALF, second = -HUGE_VALF;
  for (size_t i = 0; i < n; ++i)
    if (values[i] > first)
      second = first, first = values[i];
    else if (values[i] > second)
      second = values[i];
  return best_two ? first + second : first;
}

// Offers experts of the groups that fewer than `kept` others precede.
inline void offer_groups(const RouterSpec& r, const float* values, float* of_groups, Best& best) {
  const size_t width = r.experts / r.groups;
  for (size_t g = 0; g < r.groups; ++g) of_groups[g] = group_score(values + g * width, width, r.best_two);
  for (size_t g = 0; g < r.groups; ++g) {
    size_t before = 0;
    for (size_t h = 0; h < r.groups; ++h)
      before += of_groups[h] > of_groups[g] || (of_groups[h] == of_groups[g] && h < g);
    if (before >= r.kept) continue;
    for (size_t e = g * width; e < (g + 1) * width; ++e) best.offer(values[e], static_cast<int32_t>(e));
  }
}

inline void ascend(int32_t* ids, size_t n) {
  for (size_t i = 1; i < n; ++i) {
    const int32_t id = ids[i];
    size_t at = i;
    for (; at > 0 && ids[at - 1] > id; --at) ids[at] = ids[at - 1];
    ids[at] = id;
  }
}

inline void weigh(const RouterSpec& r, const float* logits, const float* scores, const int32_t* ids, float* weights) {
  const float* source = r.weights == RouterWeights::scores ? scores : logits;
  bool sound = true;
  for (size_t e = 0; e < r.experts; ++e) sound = sound && logits[e] < HUGE_VALF;
  for (size_t i = 0; i < r.chosen; ++i) weights[i] = source[ids[i]];
  if (r.weights == RouterWeights::softmax_of_chosen) softmax_in_place(weights, r.chosen);
  float sum = r.eps;
  for (size_t i = 0; i < r.chosen; ++i) sum += weights[i];
  for (size_t i = 0; i < r.chosen; ++i) {
    if (r.normalised) weights[i] /= sum;
    weights[i] *= r.scaling;
    if (r.expert_scale != nullptr) weights[i] *= r.expert_scale[ids[i]];
    if (!sound) weights[i] = NAN;
  }
}

inline void route_row(const RouterSpec& r, const float* logits, float* scratch, int32_t* ids, float* weights) {
  float *scores = scratch, *choice = scores + r.experts, *values = choice + r.experts, *of_groups = values + r.chosen;
  scores_of(r.score, logits, r.experts, scores);
  const float* compared = r.correction != nullptr || (r.groups > 0 && r.best_two) ? scores : logits;
  memcpy(choice, compared, r.experts * sizeof(float));
  for (size_t e = 0; r.correction != nullptr && e < r.experts; ++e) choice[e] += r.correction[e];
  Best best{r.chosen, 0, values, ids};
  if (r.groups > 0)
    offer_groups(r, choice, of_groups, best);
  else
    for (size_t e = 0; e < r.experts; ++e) best.offer(choice[e], static_cast<int32_t>(e));
  ascend(ids, r.chosen);
  weigh(r, logits, scores, ids, weights);
}

void route(const RouteArgs& a) {
  const RouterSpec& r = *a.router;
  for (size_t row = 0; row < a.rows; ++row)
    route_row(r, a.logits + row * r.experts, a.scratch, a.ids + row * r.chosen, a.weights + row * r.chosen);
}

}  // namespace
}  // namespace helm
