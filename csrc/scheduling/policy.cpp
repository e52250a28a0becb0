#include "scheduling/policy.h"

#include <stdexcept>

#include "scheduling/policies.h"

namespace helm::scheduling {
namespace {

template <typename T>
const T& as(const Options::Value& value, const std::string& name) {
  if (const T* found = std::get_if<T>(&value)) return *found;
  throw std::invalid_argument("option " + name + " is of another type");
}

struct Named {
  const char* name;
  std::unique_ptr<Policy> (*make)(const Options&);
};

const Named kPolicies[] = {
    {"gpu-only", make_gpu_only},
    {"simple-offload", make_simple_offload},
    {"symmetric", make_symmetric},
    {"fastdecode-plus", make_fastdecode_plus},
    {"neo", make_neo},
    {"apex", make_apex},
    {"adaptive", make_adaptive},
};

}  // namespace

const Options::Value& Options::at(const std::string& name) const {
  const auto found = values_.find(name);
  if (found == values_.end()) throw std::invalid_argument("no option " + name);
  return found->second;
}

bool Options::flag(const std::string& name) const { return as<bool>(at(name), name); }
int64_t Options::whole(const std::string& name) const { return as<int64_t>(at(name), name); }
const std::string& Options::text(const std::string& name) const { return as<std::string>(at(name), name); }

double Options::number(const std::string& name) const {
  const Value& value = at(name);
  if (const int64_t* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  return as<double>(value, name);
}

Pool pool_of(const Options& options) {
  const std::string& order = options.text("order");
  return {options.whole("cohorts"), order == "last" ? Order::last : order == "first" ? Order::first : Order::arrival};
}

std::unique_ptr<Policy> make_policy(const std::string& name, const Options& options) {
  for (const Named& each : kPolicies)
    if (name == each.name) return each.make(options);
  throw std::invalid_argument("no policy " + name);
}

}  // namespace helm::scheduling
