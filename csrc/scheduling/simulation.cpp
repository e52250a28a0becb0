#include "scheduling/simulation.h"

#include <algorithm>
#include <stdexcept>

#include "scheduling/closed_loop.h"

namespace helm::scheduling {

std::unique_ptr<Simulated> simulate(const Requests& requests, const Setup& setup) {
  auto done = std::make_unique<Simulated>(Simulated{Served(requests, setup.target), {}, {}, {}});
  const std::unique_ptr<ClosedLoop> loop =
      requests.users > 0 ? std::make_unique<ClosedLoop>(requests, done->served.arrival) : nullptr;
  const Requests& sent = loop ? loop->requests() : requests;
  const auto router = make_router(setup.router);
  std::vector<std::unique_ptr<Policy>> policies;
  Replicas replicas;
  for (int64_t i = 0; i < setup.replicas; ++i) done->records.emplace_back(done->served, i, setup.log);
  for (Records& records : done->records) {
    policies.push_back(setup.policy());
    replicas.push_back(std::make_unique<Replica>(sent, setup.costs, setup.limits, *policies.back(), records,
                                                 Mode{setup.one_by_one, setup.check}));
  }
  if (loop)
    loop->serve(replicas, *router);
  else
    serve(requests, replicas, *router);
  for (const auto& replica : replicas) {
    done->gpu_blocks.push_back(replica->state().most_blocks(Home::gpu));
    done->cpu_blocks.push_back(replica->state().most_blocks(Home::cpu));
  }
  const auto& fate = done->served.fate;
  if (!done->served.lost() && std::count(fate.begin(), fate.end(), static_cast<uint8_t>(Fate::unknown)) > 0)
    throw std::logic_error("requests that have not ended");
  return done;
}

}  // namespace helm::scheduling
