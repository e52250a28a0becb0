// Router: which replica a request goes to.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "scheduling/replica.h"

namespace helm::scheduling {

using Replicas = std::vector<std::unique_ptr<Replica>>;

class Router {
 public:
  virtual ~Router() = default;
  // Whether it looks at what replicas are doing when a request arrives.
  virtual bool looks() const = 0;
  virtual size_t choose(const Replicas& replicas, const Requests& requests, int64_t request) = 0;
};

// round-robin: in turns. least-loaded: the fewest requests that are not over; the first of those. prefix-aware: the
// longest prefix in its cache, if that is more than half of the prompt and its queue is not much longer than the
// shortest one; else as least-loaded. Throws std::invalid_argument for another name.
std::unique_ptr<Router> make_router(const std::string& name);

// Serves all requests, or as many as it takes to lose the run.
void serve(const Requests& requests, Replicas& replicas, Router& router);

}  // namespace helm::scheduling
