#include "serving/cohort.h"

#include <cstring>
#include <stdexcept>

#include "runtime/clock.h"
#include "formats/shape.h"

namespace helm {
namespace {

size_t widths(const StageSpec& s) { return s.hidden + 2 * s.attention.q_width() + 2 * s.attention.kv_width(); }

}  // namespace

size_t Cohort::size(const StageSpec& spec, size_t rows) { return product({rows, widths(spec), sizeof(float)}); }

Cohort::Cohort(Seat host, Buffer kept, const StageSpec& spec, int rise)
    : host_(std::move(host)),
      kept_(std::move(kept)),
      hidden_(spec.hidden * sizeof(float)),
      q_(spec.attention.q_width() * sizeof(float)),
      kv_(spec.attention.kv_width() * sizeof(float)),
      bytes_(widths(spec) * sizeof(float)),
      rise_(rise) {}

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
                        const size_t begin = host.stage->find(Op::append, layer), end = host.stage->find(Op::o, layer);
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
