#include "serving/serving_weights.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace helm {

StreamedWeights::StreamedWeights(std::vector<StreamedOperation> all, bool come_ahead, bool come_together,
                                 std::optional<LookedUp> looked_up)
    : operations(std::move(all)), ahead(come_ahead), together(come_together), table(std::move(looked_up)) {
  for (size_t i = 0; i < operations.size(); ++i) {
    const size_t op = operations[i].op;
    if (by_op_.size() <= op) by_op_.resize(op + 1);
    if (by_op_[op] != 0) throw std::invalid_argument("operation " + std::to_string(op) + " brings its weights twice");
    by_op_[op] = i + 1;
  }
}

const StreamedOperation* StreamedWeights::find(size_t op) const {
  return op < by_op_.size() && by_op_[op] != 0 ? &operations[by_op_[op] - 1] : nullptr;
}

WeightVisits::WeightVisits(std::shared_ptr<const StreamedWeights> weights, const std::vector<size_t>& order,
                           Bring bring, Mark mark)
    : weights_(std::move(weights)), bring_(std::move(bring)), mark_(std::move(mark)) {
  plan(order);
  if (!weights_->ahead) return;
  std::vector<size_t> begun;
  for (Visit& visit : visits_) {
    if (std::find(begun.begin(), begun.end(), visit.set) != begun.end()) continue;
    begun.push_back(visit.set);
    this->bring(visit, {});
  }
}

void WeightVisits::plan(const std::vector<size_t>& order) {
  std::map<size_t, size_t> open;  // by set, its visit
  for (const size_t op : order) {
    const StreamedOperation* found = weights_->find(op);
    if (found == nullptr) continue;
    const auto before = open.find(found->set);
    if (before == open.end() || visits_[before->second].owner != found->owner) {
      if (before != open.end()) visits_[before->second].next = visits_.size();
      open[found->set] = visits_.size();
      visits_.push_back({found->set, found->owner});
    }
    Visit& visit = visits_[open[found->set]];
    const auto same = [&](const Coming& each) { return each.what == found; };
    if (std::none_of(visit.coming.begin(), visit.coming.end(), same)) visit.coming.push_back({found, false, nullptr});
    visit.last = uses_.size();
    uses_.push_back({op, open[found->set]});
  }
}

Events WeightVisits::come(size_t op, Events wait) {
  const StreamedOperation* found = weights_->find(op);
  if (found == nullptr) return {};
  if (next_ == uses_.size() || uses_[next_].op != op)
    throw std::logic_error("operations are not in the order of their weights");
  Visit& visit = visits_[uses_[next_].visit];
  Events events;
  for (Coming& each : visit.coming) {
    if (!weights_->together && each.what != found) continue;
    if (!each.brought) {
      wait.push_back(mark_());
      weights_->together ? bring(visit, wait) : bring(each, wait);
    }
    if (each.done != nullptr) events.push_back(std::exchange(each.done, nullptr));
  }
  return events;
}

void WeightVisits::read(size_t op) {
  if (weights_->find(op) == nullptr) return;
  const Visit& visit = visits_[uses_[next_].visit];
  if (weights_->ahead && visit.last == next_ && visit.next != kNoVisit) bring(visits_[visit.next], {mark_()});
  ++next_;
}

void WeightVisits::bring(Visit& visit, const Events& wait) {
  for (Coming& each : visit.coming) bring(each, wait);
}

void WeightVisits::bring(Coming& coming, const Events& wait) {
  coming.brought = true;
  coming.done = bring_(*coming.what, wait);
}

}  // namespace helm
