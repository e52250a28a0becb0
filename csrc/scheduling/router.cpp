#include "scheduling/router.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace helm::scheduling {
namespace {

// A prefix is worth a longer queue only up to some length, and only if it is most of the prompt: else everybody who
// shares a first block, such as a system prompt, would end up at one replica.
constexpr int64_t kMostAhead = 8;
constexpr int64_t kLeastShare = 2;  // of the prompt: one part in so many

class RoundRobin final : public Router {
 public:
  bool looks() const override { return false; }
  size_t choose(const Replicas& replicas, const Requests&, int64_t) override { return next_++ % replicas.size(); }

 private:
  size_t next_ = 0;
};

size_t least_loaded(const Replicas& replicas) {
  const auto fewer = [](const auto& one, const auto& other) { return one->outstanding() < other->outstanding(); };
  return static_cast<size_t>(std::min_element(replicas.begin(), replicas.end(), fewer) - replicas.begin());
}

class LeastLoaded final : public Router {
 public:
  bool looks() const override { return true; }
  size_t choose(const Replicas& replicas, const Requests&, int64_t) override { return least_loaded(replicas); }
};

class PrefixAware final : public Router {
 public:
  bool looks() const override { return true; }
  size_t choose(const Replicas& replicas, const Requests& requests, int64_t request) override {
    size_t best = least_loaded(replicas);
    if (requests.hash_block == 0) return best;
    const int64_t most = replicas[best]->outstanding() + kMostAhead;
    int64_t longest = (requests.prompt[request] - 1) / kLeastShare;
    for (size_t i = 0; i < replicas.size(); ++i) {
      const int64_t found = replicas[i]->state().reusable(requests.hashes_of(request), requests.prompt[request]);
      if (found > longest && replicas[i]->outstanding() <= most) longest = found, best = i;
    }
    return best;
  }
};

}  // namespace

std::unique_ptr<Router> make_router(const std::string& name) {
  if (name == "round-robin") return std::make_unique<RoundRobin>();
  if (name == "least-loaded") return std::make_unique<LeastLoaded>();
  if (name == "prefix-aware") return std::make_unique<PrefixAware>();
  throw std::invalid_argument("no router " + name);
}

void serve(const Requests& requests, Replicas& replicas, Router& router) {
  const bool looks = replicas.size() > 1 && router.looks();
  for (int64_t request = 0; request < requests.count && !replicas.front()->lost(); ++request) {
    if (looks)
      for (const auto& replica : replicas) replica->run(requests.arrival[request]);
    replicas[router.choose(replicas, requests, request)]->expect(request);
  }
  for (const auto& replica : replicas) replica->run(std::numeric_limits<double>::infinity());
}

}  // namespace helm::scheduling
