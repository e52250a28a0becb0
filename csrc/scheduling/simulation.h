// Simulation: requests through replicas in virtual time.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "scheduling/records.h"
#include "scheduling/router.h"

namespace helm::scheduling {

struct Setup {
  Costs costs;
  Limits limits;
  PolicyMaker policy;
  int64_t replicas = 1;
  std::string router = "round-robin";
  bool one_by_one = false;  // every pass on its own: the reference of runs in closed form
  bool log = false;         // keep the order of events
  bool check = false;       // State::check after every pass
  Target target = {};       // a run that misses it is not finished
};

// What became of requests, and what each replica did.
struct Simulated {
  Served served;
  std::vector<Records> records;                 // by replica
  std::vector<int64_t> gpu_blocks, cpu_blocks;  // most in use at a time, by replica
};

// Throws std::invalid_argument for names that do not exist, std::logic_error where a policy does what it must not.
std::unique_ptr<Simulated> simulate(const Requests& requests, const Setup& setup);

}  // namespace helm::scheduling
