#include "serving/cohort.h"

#include <cstring>
#include <stdexcept>

#include "runtime/clock.h"
#include "formats/shape.h"

namespace helm {
namespace {

// Bytes of a row's hidden state, queries, keys, values and what attention gives.
size_t row_bytes(const Seat& seat) {
  return seat.hidden.row_bytes + seat.q.row_bytes + seat.k.row_bytes + seat.v.row_bytes + seat.attended.row_bytes;
}

}  // namespace

size_t Cohort::size(Stage& stage, size_t rows) {
  return product({rows, row_bytes(Seat(stage, {nullptr, nullptr, 0}))});
}

Cohort::Cohort(Seat host, Buffer kept, Stage& stage, int rise)
    : host_(std::move(host)), kept_(std::move(kept)), rise_(rise) {
  const Seat seat(stage, {nullptr, nullptr, 0});
  seat.check_crosses();
  hidden_ = seat.hidden.row_bytes, q_ = seat.q.row_bytes, kv_ = seat.k.row_bytes, bytes_ = row_bytes(seat);
}

void Cohort::reset() {
  if (!landed()) throw std::invalid_argument("a cohort's attention is under way");
  layer_ = kNone, under_way_ = nullptr;
}

void Joining::enter(const Seat& seat) {
  if (waits) cohort->wait();
  joined = cohort->landed();
  if (!joined) return;
  host_seconds = cohort->under_way_->span.end - cohort->under_way_->span.start;
  const char* from = cohort->kept_.data;
  const size_t first = joint->rows() - kept.size();
  for (size_t i = 0; i < kept.size(); ++i) {
    memcpy(seat.at(seat.hidden, first + i), from + cohort->hidden(kept[i]), cohort->hidden_);
    memcpy(seat.at(seat.attended, first + i), from + cohort->back(kept[i]), cohort->q_);
  }
}

void Joining::leave(const std::shared_ptr<Joining>& self, const Seat& seat, const ServingLanes& lanes, size_t layer) {
  Cohort& c = *cohort;
  const Seat host = c.host_;
  const size_t rows = apart->rows(), first = joint->rows() - rows;
  Copy sent{host.workspace, 0, c.kept_, 0, 0}, back{c.kept_, 0, host.workspace, 0, 0};
  for (size_t i = 0; i < rows; ++i) {
    memcpy(c.kept_.data + c.hidden(i), seat.at(seat.hidden, first + i), c.hidden_);
    size_t to = c.sent(i);
    for (const auto& [here, there] : {std::pair{seat.q, host.q}, {seat.k, host.k}, {seat.v, host.v}}) {
      memcpy(c.kept_.data + to, seat.at(here, first + i), here.stride);
      sent.pieces.push_back({Seat::offset(there, i), to, here.stride});
      to += here.stride;
    }
    back.pieces.push_back({c.back(i), Seat::offset(host.attended, i), c.q_});
  }
  sent.done = std::make_shared<Event>();
  const auto task = std::make_shared<Attending>();
  const std::shared_ptr<Event> attended{task, &task->attended};
  // On its way back it keeps its turn, also where tasks pass each other: what passes wait for comes after it.
  back.wait = {attended}, back.done = {task, &task->landed};
  lanes.queries->submit(sent);
  lanes.host->submit({[self, host, layer, task] {
                        const size_t begin = host.stage->find("append", layer), end = host.stage->find("o", layer);
                        std::vector<double> stamps(end - begin + 1);
                        const Ragged& rows = *self->apart;
                        host.stage->run_ragged(rows, rows.rows(), nullptr, nullptr, begin, end, stamps.data());
                        task->span = {stamps.front(), stamps.back()};
                      },
                      {sent.done},
                      attended,
                      nullptr,
                      c.rise_ * static_cast<long long>(layer)});
  lanes.outputs->submit(back);
  c.layer_ = layer, c.under_way_ = task;
  joined = true;
}

}  // namespace helm
