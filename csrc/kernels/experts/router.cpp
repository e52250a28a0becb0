#include "kernels/experts/router.h"

#include <stdexcept>

namespace helm {

void check(const RouterSpec& r) {
  if (r.chosen == 0 || r.chosen > r.experts) throw std::invalid_argument("a router chooses 1 to all of its experts");
  if (r.groups == 0) return;
  if (r.experts % r.groups != 0) throw std::invalid_argument("groups must divide the experts");
  if (r.kept == 0 || r.kept > r.groups) throw std::invalid_argument("1 to all groups must be kept");
  if (r.best_two && r.experts / r.groups < 2) throw std::invalid_argument("groups need two experts to have a best two");
  if (r.kept * (r.experts / r.groups) < r.chosen)
    throw std::invalid_argument("the groups kept have fewer experts than are chosen");
}

void route_share(const MixerKernels& k, size_t thread, size_t threads, const RouterSpec& router, const float* logits,
                 size_t rows, int32_t* ids, float* weights, float* scratch) {
  const Range share = share_of(rows, thread, threads);
  k.route({&router, logits + share.begin * router.experts, share.end - share.begin, ids + share.begin * router.chosen,
           weights + share.begin * router.chosen, scratch});
}

}  // namespace helm
