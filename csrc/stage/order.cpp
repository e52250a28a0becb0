#include "stage/order.h"

#include <algorithm>
#include <set>

#include "stage/experts_operation.h"
#include "stage/linear_operation.h"
#include "stage/norm_operation.h"
#include "stage/recurrent_operation.h"

namespace helm {
namespace {

const LinearOperation* product_of(const Operation& op) {
  const auto* linear = dynamic_cast<const LinearOperation*>(&op);
  return linear != nullptr && !linear->adds ? linear : nullptr;
}

// Whether both are the same part, so that each thread reads of a gate only its own share. Where products are `divided`,
// the second one waits for others' rows of it before its activation.
bool alike(const LinearOperation& gate, const LinearOperation& up) {
  return up.reads.size() > 1 && up.reads[1].name == gate.leaves[0].name && gate.matrix && up.matrix &&
         up.matrix->first == gate.matrix->first && up.matrix->rows == gate.matrix->rows;
}

// Whether an operation leaves nothing of a norm in the scratch of threads.
bool forgets(const Operation& op) {
  return dynamic_cast<const RecurrenceOperation*>(&op) != nullptr ||
         dynamic_cast<const RouterOperation*>(&op) != nullptr;
}

// Whether one of the operations after a norm, up to the next, reads it other than as the input of a product, or after
// one that forgets it.
bool read_whole(const StageSpec& spec, size_t norm) {
  bool forgotten = false;
  for (size_t i = norm + 1; i < spec.operations.size(); ++i) {
    const Operation& op = *spec.operations[i];
    if (dynamic_cast<const NormOperation*>(&op) != nullptr) return false;
    const bool reads = std::any_of(op.reads.begin(), op.reads.end(), [](const Value& v) { return v.normed(); });
    if (reads && (forgotten || op.columns() == 0)) return true;
    forgotten = forgotten || forgets(op);
  }
  return false;
}

}  // namespace

void share_values(StageSpec& spec) {
  std::set<std::string> pending;
  for (size_t i = 0; i + 1 < spec.operations.size(); ++i) {
    Operation& op = *spec.operations[i];
    if (auto* norm = dynamic_cast<NormOperation*>(&op)) norm->kept = read_whole(spec, i);
    const LinearOperation *own = product_of(op), *next = product_of(*spec.operations[i + 1]);
    if (own == nullptr) continue;
    pending.insert(own->leaves[0].name);
    // Another input is packed where this one's is.
    bool waits = next == nullptr || next->reads[0].name != own->reads[0].name;
    for (size_t j = 0; next != nullptr && j < next->reads.size(); ++j)
      waits = waits || (pending.count(next->reads[j].name) > 0 && !(j == 1 && alike(*own, *next)));
    op.shares = waits;
    if (waits) pending.clear();
  }
}

std::vector<bool> cuts(const StageSpec& spec) {
  std::vector<bool> alone(spec.operations.size() + 1, true);
  std::set<std::string> live;
  for (size_t i = spec.operations.size(); i-- > 0;) {
    const Operation& op = *spec.operations[i];
    for (const Value& value : op.leaves) live.erase(value.name);
    for (const Value& value : op.reads)
      if (value.area() != Area::hidden && !op.of_outputs()) live.insert(value.name);
    alone[i] = live.empty();
  }
  return alone;
}

}  // namespace helm
