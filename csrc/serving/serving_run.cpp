#include "serving/serving_run.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "stage/embedding_operation.h"

namespace helm {
namespace {

// What `append` and attention of the host can run.
void check_apart(const Seat& seat, const Ragged& rows) {
  seat.stage->check_ragged(rows, rows.rows(), false, seat.stage->find("append", 0), seat.stage->find("o", 0));
}

}  // namespace

void ServingRun::check(size_t b) const {
  const SubBatch& batch = it.batches[b];
  const Stage& stage = *batch.seat.stage;
  std::vector<const Ragged*> all{batch.rows.get()};
  for (const auto& each : it.joining)
    if (each->batch() == b) all.push_back(each->joint.get());
  if (it.ids[b].size() < embedded_rows(b)) throw std::invalid_argument("every row needs a token");
  for (const int32_t id : it.ids[b])
    if (id < 0 || static_cast<size_t>(id) >= stage.spec().vocab)
      throw std::invalid_argument("token id " + std::to_string(id) + " is outside the vocabulary of " +
                                  std::to_string(stage.spec().vocab));
  for (const Ragged* each : all) stage.check_ragged(*each, each->rows(), true, 0, stage.ops().size());
  if (batch.apart != nullptr) check_apart(batch.host, *batch.apart);
  for (const auto& each : it.joining)
    if (each->batch() == b && each->stays) check_apart(batch.host, *each->apart);
}

std::vector<std::shared_ptr<Joining>> ServingRun::entering(size_t b, size_t layer) const {
  std::vector<std::shared_ptr<Joining>> found;
  for (const auto& each : it.joining)
    if (each->batch() == b && each->at == layer) found.push_back(each);
  return found;
}

const Joining* ServingRun::staying(size_t b, size_t layer) const {
  const Joining* last = nullptr;
  for (const auto& each : it.joining)
    if (each->batch() == b && each->stays_after(layer)) last = each.get();
  return last;
}

size_t ServingRun::embedded_rows(size_t b) const {
  const auto joining = entering(b, Cohort::kNone);
  return (joining.empty() ? it.batches[b].rows : joining[0]->joint)->rows();
}

bool ServingRun::computes(size_t b) const {
  const auto joins = [b](const auto& each) { return each->batch() == b; };
  return it.batches[b].rows->rows() > 0 || std::any_of(it.joining.begin(), it.joining.end(), joins);
}

void ServingRun::check_weights() const {
  const EmbeddingOperation* embedding = it.batches[0].seat.stage->embedding();
  const LookedUp* from = it.weights != nullptr && it.weights->table ? &*it.weights->table : nullptr;
  bool fits = (embedding != nullptr && embedding->looked_up) == (from != nullptr);
  for (size_t b = 0; fits && from != nullptr && b < it.batches.size(); ++b)
    fits = from->columns == embedding->leaves[0].width && from->format == embedding->table.format &&
           from->targets[b].size / row_size(from->format, from->columns) >= embedded_rows(b);
  if (!fits) throw std::invalid_argument("rows of a table come where an embedding has them looked up, all of a pass");
  if (it.weights == nullptr) return;
  for (const StreamedOperation& each : it.weights->operations)
    if (each.op >= it.batches[0].seat.stage->ops().size())
      throw std::invalid_argument("weights come for an operation that there is not");
}

void ServingRun::place_lookups(size_t b) {
  const Stage& s = *it.batches[b].seat.stage;
  for (const ExpertLookup& each : it.lookups) {
    const size_t router = s.find("router", each.block), down = s.find("experts_down", each.block);
    const size_t combine = s.find("combine", each.block), none = s.ops().size();
    const bool joins = each.joined != nullptr;
    const RoutedExperts found{router, down == none ? router : down, joins ? combine : RoutedExperts::kNone, &each};
    if (router == none || found.last < router || (joins && (combine == none || combine <= found.last)))
      throw std::invalid_argument("block " + std::to_string(each.block) + " has no experts to look up");
    if (!routed[b].empty() && routed[b].back().router >= found.router)
      throw std::invalid_argument("experts are looked up block by block");
    routed[b].push_back(found);
  }
}

bool ServingRun::yields() const {
  const auto some = [](const SubBatch& batch) { return !batch.rows->outputs.empty(); };
  return !it.joining.empty() || std::any_of(it.batches.begin(), it.batches.end(), some);
}

std::vector<size_t> ServingRun::order() const {
  std::vector<size_t> ops;
  const auto add = [&](size_t first, size_t last) {
    for (size_t op = first; op < last; ++op) ops.push_back(op);
  };
  const Stage& s = *it.batches[0].seat.stage;
  const size_t norm = s.find("final_norm");
  for (size_t turn = 0; turn <= it.layers; ++turn)
    for (size_t b = 0; b < it.batches.size(); ++b)
      if (computes(b)) add(turn == 0 ? 0 : s.within("o", turn - 1), turn == it.layers ? norm : s.within("o", turn));
  if (yields()) add(norm, s.ops().size());
  return ops;
}

void ServingRun::prepare() {
  for (size_t b = 0; b < it.batches.size(); ++b) check(b), place_lookups(b);
  check_weights();
  if (it.batches.size() == 1) return;
  const Ragged &first = *it.batches[0].rows, &second = last_rows(1);
  std::vector<size_t> outputs = first.outputs, positions(first.rows() + second.outputs.size());
  for (size_t i = 0; i < second.outputs.size(); ++i) outputs.push_back(first.rows() + i);
  ends =
      std::make_shared<Ragged>(std::move(positions), std::vector<RaggedSequence>{}, std::vector<CacheRun>{}, outputs);
  const Stage& stage = *it.batches[0].seat.stage;
  stage.check_ragged(*ends, ends->rows(), false, stage.find("final_norm"), stage.ops().size());
}

void ServingRun::gather() const {
  const Seat &mine = it.batches[0].seat, &other = it.batches[1].seat;
  const std::vector<size_t>& from = last_rows(1).outputs;
  for (size_t i = 0; i < from.size(); ++i)
    memcpy(mine.at(mine.hidden, it.batches[0].rows->rows() + i), other.at(other.hidden, from[i]),
           mine.hidden.row_bytes);
}

double ServingRun::waited(const ServingRange& range) const {
  double free = ended, come = 0;
  for (const auto& event : range.wait) free = std::max(free, event->time());
  for (const auto& event : range.come) come = std::max(come, event->time());
  return std::max(0.0, come - free);
}

void ServingRun::perform(const ServingRange& range) {
  const SubBatch& batch = it.batches[range.batch];
  Stage& s = *batch.seat.stage;
  const auto [whose, joining] = range.who;
  const bool joint = whose == Whose::joint || (whose == Whose::perhaps && joining->joined);
  const Ragged& rows = whose == Whose::ends ? *ends : joint ? *joining->joint : *batch.rows;
  const size_t norm = s.find("final_norm"), last = rows.outputs.empty() ? std::min(range.last, norm) : range.last;
  if (rows.rows() == 0 || range.first >= last) return;
  double waiting = waited(range);
  chosen.resize(rows.outputs.size());
  size_t first = range.first;
  const auto up_to = [&](size_t end) {
    if (first < end) compute(range.batch, rows, first, end, std::exchange(waiting, 0));
    first = std::max(first, end);
  };
  const auto within = [&](size_t op) { return range.first <= op && op < last; };
  for (const RoutedExperts& each : routed[range.batch]) {
    if (within(each.router)) up_to(each.router + 1), look_up(range.batch, each, rows);
    if (within(each.combine)) up_to(each.combine), waiting += join(each);
  }
  up_to(last);
}

void ServingRun::look_up(size_t b, const RoutedExperts& experts, const Ragged& rows) {
  while (experts.lookup->ask(b, rows.rows())) compute(b, rows, experts.router + 1, experts.last + 1, 0);
}

double ServingRun::join(const RoutedExperts& experts) {
  const double before = now();
  experts.lookup->joined->wait();
  return now() - before;
}

void ServingRun::compute(size_t b, const Ragged& rows, size_t first, size_t last, double waiting) {
  Stage& s = *it.batches[b].seat.stage;
  const size_t norm = s.find("final_norm");
  std::vector<double> stamps(last - first + 1);
  s.run_ragged(rows, rows.rows(), it.ids[b].data(), chosen.data(), first, last, stamps.data());
  for (size_t op = first; op < last; ++op) {
    const bool end = s.outside(op) || op >= norm;
    double& part = end ? seconds.ends : s.is(op, "attention") ? seconds.gpu_attention : seconds.linear[b];
    part += stamps[op - first + 1] - stamps[op - first] + std::exchange(waiting, 0);
  }
  ended = stamps.back();
}

}  // namespace helm
