#include "serving_run.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

namespace helm {
namespace {

// What `append` and attention of the host can run.
void check_apart(const Seat& seat, const Ragged& rows) {
  seat.stage->check_ragged(rows, rows.rows(), false, seat.stage->find(Op::append), seat.stage->find(Op::o));
}

}  // namespace

void ServingRun::check(size_t b) const {
  const SubBatch& batch = it.batches[b];
  const Stage& stage = *batch.seat.stage;
  const Ragged& rows = joining(b) != nullptr ? *joining(b)->joint : *batch.rows;
  if (it.ids[b].size() < rows.rows()) throw std::invalid_argument("every row needs a token");
  for (const int32_t id : it.ids[b])
    if (id < 0 || static_cast<size_t>(id) >= stage.spec().vocab)
      throw std::invalid_argument("token id " + std::to_string(id) + " is outside the vocabulary of " +
                                  std::to_string(stage.spec().vocab));
  for (const Ragged* each : {&rows, batch.rows.get()}) stage.check_ragged(*each, each->rows(), true, 0, stage.ops().size());
  if (batch.apart != nullptr) check_apart(batch.host, *batch.apart);
  if (joining(b) != nullptr && joining(b)->stays) check_apart(batch.host, *joining(b)->apart);
}

void ServingRun::prepare() {
  for (size_t b = 0; b < it.batches.size(); ++b) check(b);
  if (it.batches.size() == 1) return;
  const Ragged &first = *it.batches[0].rows, &second = staying(1);
  std::vector<size_t> outputs = first.outputs, positions(first.rows() + second.outputs.size());
  for (size_t i = 0; i < second.outputs.size(); ++i) outputs.push_back(first.rows() + i);
  ends = std::make_shared<Ragged>(std::move(positions), std::vector<RaggedSequence>{}, std::vector<CacheRun>{}, outputs);
  const Stage& stage = *it.batches[0].seat.stage;
  stage.check_ragged(*ends, ends->rows(), false, stage.find(Op::final_norm), stage.ops().size());
}

void ServingRun::gather() const {
  const Seat &mine = it.batches[0].seat, &other = it.batches[1].seat;
  const std::vector<size_t>& from = staying(1).outputs;
  for (size_t i = 0; i < from.size(); ++i)
    memcpy(mine.at(mine.hidden, it.batches[0].rows->rows() + i), other.at(other.hidden, from[i]), mine.hidden.row_bytes);
}

void ServingRun::perform(const ServingRange& range) {
  const SubBatch& batch = it.batches[range.batch];
  Stage& s = *batch.seat.stage;
  const bool joint = range.who == Who::joint || (range.who == Who::perhaps && it.joining->joined);
  const Ragged& rows = range.who == Who::ends ? *ends : joint ? *it.joining->joint : *batch.rows;
  const size_t norm = s.find(Op::final_norm), last = rows.outputs.empty() ? std::min(range.last, norm) : range.last;
  if (rows.rows() == 0 || range.first >= last) return;
  std::vector<double> stamps(last - range.first + 1);
  chosen.resize(rows.outputs.size());
  s.run_ragged(rows, rows.rows(), it.ids[range.batch].data(), chosen.data(), range.first, last, stamps.data());
  for (size_t op = range.first; op < last; ++op) {
    const bool end = s.is(op, Op::embedding) || op >= norm;
    double& part = end ? seconds.ends : s.is(op, Op::attention) ? seconds.gpu_attention : seconds.linear[range.batch];
    part += stamps[op - range.first + 1] - stamps[op - range.first];
  }
}

}  // namespace helm
