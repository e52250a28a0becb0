#include "scheduling/simulation.h"

#include <algorithm>
#include <stdexcept>

namespace helm::scheduling {

std::unique_ptr<Simulated> simulate(const Requests& requests, const Setup& setup) {
  auto done = std::make_unique<Simulated>(Simulated{Served(requests.count), {}, {}, {}});
  const auto router = make_router(setup.router);
  std::vector<std::unique_ptr<Policy>> policies;
  Replicas replicas;
  for (int64_t i = 0; i < setup.replicas; ++i) done->records.emplace_back(done->served, i, setup.log);
  for (Records& records : done->records) {
    policies.push_back(setup.policy());
    replicas.push_back(std::make_unique<Replica>(requests, setup.costs, setup.limits, *policies.back(), records,
                                                 Mode{setup.one_by_one, setup.check}));
  }
  serve(requests, replicas, *router);
  for (const auto& replica : replicas) {
    done->gpu_blocks.push_back(replica->state().most_blocks(Home::gpu));
    done->cpu_blocks.push_back(replica->state().most_blocks(Home::cpu));
  }
  const auto& fate = done->served.fate;
  if (std::count(fate.begin(), fate.end(), static_cast<uint8_t>(Fate::unknown)) > 0)
    throw std::logic_error("requests that have not ended");
  return done;
}

}  // namespace helm::scheduling
