#include "serving/serving.h"

#include <stdexcept>

#include "serving/serving_run.h"

namespace helm {

Seat::Seat(Stage& seated, Buffer memory) : stage(&seated), workspace(std::move(memory)) {
  const std::pair<const char*, Region*> places[] = {
      {"hidden", &hidden}, {"q", &q}, {"k", &k}, {"v", &v}, {"attended", &attended}};
  for (const auto& [name, region] : seated.regions())
    for (const auto& [sought, place] : places)
      if (name == sought) *place = region;
}

void Seat::check_crosses() const {
  if (!stage->uniform()) throw std::invalid_argument("rows only cross between stages whose blocks are laid out alike");
}

namespace {

using Shared = std::shared_ptr<ServingRun>;

void check_lanes(const ServingLanes& lanes, const ServingIteration& it) {
  bool crosses = !it.joining.empty();
  for (const SubBatch& batch : it.batches) crosses = crosses || batch.apart != nullptr;
  bool copies = false;
  for (const LayerCopies* each : {&it.swap_out, &it.swap_in, &it.fetch, &it.store})
    copies = copies || !each->pieces.empty();
  for (const SubBatch& batch : it.batches)
    if (crosses) batch.seat.check_crosses();
  if (crosses && (lanes.host == nullptr || lanes.queries == nullptr || lanes.outputs == nullptr))
    throw std::invalid_argument("attention on the host needs its queue, and a link both ways");
  if (it.weights != nullptr && lanes.to_device == nullptr) throw std::invalid_argument("weights that come need a link");
  if (copies && (lanes.to_host == nullptr || lanes.to_device == nullptr))
    throw std::invalid_argument("caches that move need a link both ways");
}

// Everything that an iteration submits, layer by layer.
class Submitter {
 public:
  Submitter(const ServingLanes& lanes, Shared run)
      : lanes_(lanes), run_(std::move(run)), it_(run_->it), back_(it_.batches.size()) {
    if (it_.weights == nullptr) return;
    const auto bring = [this](const StreamedOperation& each, const Events& wait) { return bring_weights(each, wait); };
    if (it_.weights->table) look_up(*it_.weights->table);
    weights_.emplace(it_.weights, run_->order(), bring, [this] { return mark(); });
  }

  void all() {
    for (size_t layer = 0; layer < it_.layers; ++layer) submit(layer);
    for (size_t b = 0; b < it_.batches.size(); ++b) end(b);
    finish();
    run_->last.push_back(mark());
  }

 private:
  Stage& stage(size_t b) const { return *it_.batches[b].seat.stage; }
  size_t operations(size_t b) const { return stage(b).ops().size(); }
  // Whose rows go from the attention of `layer` to that of the next one; kNone: from the embedding.
  Who after(size_t b, size_t layer) const {
    if (const Joining* last = run_->staying(b, layer); last != nullptr) return {Whose::joint, last};
    const auto entering = run_->entering(b, layer);
    if (entering.empty()) return {};
    return {layer == Cohort::kNone ? Whose::joint : Whose::perhaps, entering[0].get()};
  }
  // The last of those whose rows are in sub-batch `b` while the host attends to `layer`, and stay; or null.
  const Joining* there(size_t b, size_t layer) const { return layer == 0 ? nullptr : run_->staying(b, layer - 1); }

  void submit(size_t layer) {
    const Events moved = swaps(layer);
    for (size_t b = 0; b < it_.batches.size(); ++b) {
      begin(b, layer, moved);
      cross(b, layer, moved);
      attend(b, layer, moved);
    }
  }

  // Up to what `append` leaves.
  void begin(size_t b, size_t layer, Events moved) {
    Stage& s = stage(b);
    const size_t norm = s.find("norm1", layer), first = layer == 0 ? 0 : s.within("o", layer - 1);
    const size_t before = layer > 0 ? layer - 1 : Cohort::kNone;
    const Who who = after(b, before);
    if (layer > 0) enter(b, before);
    if (layer > 0) add(b, first, norm, who, std::move(back_[b]));
    back_[b].clear();
    if (b == 0 && stored_[layer % 2] != nullptr) moved.push_back(stored_[layer % 2]);
    add(b, layer == 0 ? 0 : norm, s.within("attention", layer), who, std::move(moved));
    leave(b, before, layer);
  }

  void end(size_t b) {
    enter(b, it_.layers - 1);
    const Who who = after(b, it_.layers - 1);
    add(b, stage(b).within("o", it_.layers - 1), stage(b).find("final_norm"), who, std::move(back_[b]));
  }

  // The final norm and the head, of both sub-batches together: the head's weights are read once.
  void finish() {
    const size_t norm = stage(0).find("final_norm");
    if (it_.batches.size() == 1) {
      add(0, norm, operations(0), after(0, it_.layers - 1), {});
      for (const auto& each : run_->entering(0, it_.layers - 1))
        item([each] {
          if (each->joined) each->end();
        });
      return;
    }
    item([run = run_] { run->gather(); });
    add(0, norm, operations(0), {Whose::ends, nullptr}, {});
  }

  // The host's share of a layer's attention.
  void cross(size_t b, size_t layer, Events moved) {
    const SubBatch& batch = it_.batches[b];
    const Joining* joint = there(b, layer);
    const SharedRows& apart = joint != nullptr ? joint->apart : batch.apart;
    if (apart == nullptr) return;
    const size_t rows = apart->rows(), first = (joint != nullptr ? *joint->joint : *batch.rows).rows() - rows;
    const Seat &from = batch.seat, &to = batch.host;
    Copy sent{to.workspace, 0, from.workspace, 0, 0}, back{from.workspace, 0, to.workspace, 0, 0};
    for (const auto& [there, here] : {std::pair{to.q, from.q}, {to.k, from.k}, {to.v, from.v}})
      sent.pieces.push_back({there.offset, Seat::offset(here, first), rows * here.stride});
    back.pieces.push_back({Seat::offset(from.attended, first), to.attended.offset, rows * from.attended.stride});
    sent.wait = {mark()};
    moved.push_back(copy(*lanes_.queries, std::move(sent), &ServingSeconds::to_host));
    back.wait = {attend_on_host(batch.host, apart, layer, std::move(moved))};
    back_[b] = {copy(*lanes_.outputs, std::move(back), &ServingSeconds::to_device)};
  }

  std::shared_ptr<Event> attend_on_host(const Seat& host, const SharedRows& apart, size_t layer, Events wait) {
    auto done = std::make_shared<Event>();
    lanes_.host->submit({[run = run_, &s = *host.stage, apart, layer] {
                           const size_t first = s.find("append", layer), last = s.find("o", layer);
                           std::vector<double> stamps(last - first + 1);
                           s.run_ragged(*apart, apart->rows(), nullptr, nullptr, first, last, stamps.data());
                           run->seconds.cpu_attention += stamps.back() - stamps.front();
                         },
                         std::move(wait), done});
    return done;
  }

  // The accelerator's share of a layer's attention; caches that pass through come before it, and leave after it.
  void attend(size_t b, size_t layer, const Events& moved) {
    Stage& s = stage(b);
    Events wait;
    if (b == 0 && !it_.fetch.pieces.empty()) {
      Events before = moved;
      if (stored_[layer % 2] != nullptr) before.push_back(stored_[layer % 2]);
      wait.push_back(copy_layer(*lanes_.to_device, it_.fetch, layer, std::move(before), &ServingSeconds::swap_in));
    }
    const Joining* joint = there(b, layer);
    const Who who = joint != nullptr ? Who{Whose::joint, joint} : Who{};
    add(b, s.within("attention", layer), s.within("o", layer), who, std::move(wait));
    if (b > 0 || it_.store.pieces.empty()) return;
    Events before = moved;
    before.push_back(mark());
    stored_[layer % 2] = copy_layer(*lanes_.to_host, it_.store, layer, std::move(before), &ServingSeconds::swap_out);
    if (layer + 2 >= it_.layers) run_->last.push_back(stored_[layer % 2]);
  }

  // Caches of whole requests on their way, which everything in this layer waits for. Layers without a cache have none:
  // those of the others come before they are needed.
  Events swaps(size_t layer) {
    Events found;
    if (!it_.swap_out.pieces.empty() && layer < it_.swap_out.source.layers)
      found.push_back(copy_layer(*lanes_.to_host, it_.swap_out, layer, {}, &ServingSeconds::swap_out));
    if (!it_.swap_in.pieces.empty() && layer < it_.swap_in.source.layers)
      found.push_back(copy_layer(*lanes_.to_device, it_.swap_in, layer, found, &ServingSeconds::swap_in));
    return found;
  }

  std::shared_ptr<Event> copy_layer(CopyEngine& engine, const LayerCopies& copies, size_t layer, Events wait,
                                    Part part) {
    const auto at = [layer](const LayerSide& side) { return layer % side.layers * side.stride; };
    Copy each{copies.target.buffer, at(copies.target), copies.source.buffer, at(copies.source), 0};
    each.pieces = copies.pieces, each.wait = std::move(wait);
    return copy(engine, std::move(each), part);
  }

  std::shared_ptr<Event> copy(CopyEngine& engine, Copy each, Part part) {
    run_->copied.emplace_back(part, Span{0, 0});
    auto done = std::make_shared<Event>();
    each.done = done, each.times = &run_->copied.back().second.start, each.keep = run_;
    engine.submit(std::move(each));
    return done;
  }

  // Of those who join after the attention of layer `at`.
  void enter(size_t b, size_t at) {
    for (const auto& each : run_->entering(b, at))
      item([run = run_, b, each] { each->enter(run->it.batches[b].seat); });
  }
  void leave(size_t b, size_t at, size_t layer) {
    for (const auto& each : run_->entering(b, at))
      if (!each->stays)
        item([run = run_, b, each, layer, lanes = lanes_] {
          if (layer == 0 || each->joined) each->leave(each, run->it.batches[b].seat, lanes, layer);
        });
  }

  // Work between ranges on the accelerator's queue.
  void item(std::function<void()> work) {
    flush(nullptr);
    lanes_.accelerator->submit({std::move(work), {}, nullptr});
  }

  // Operations whose weights come begin when these have, one by one.
  void add(size_t b, size_t first, size_t last, Who who, Events wait) {
    const bool ends = who.whose == Whose::ends || first == stage(b).find("final_norm");
    const bool computes = ends ? run_->yields() : run_->computes(b);
    if (!weights_ || !computes) return extend(b, first, last, who, std::move(wait), {});
    for (size_t op = first; op < last; ++op) {
      Events come = weights_->come(op, wait);
      if (op == 0 && looked_up_[b] != nullptr) come.push_back(std::exchange(looked_up_[b], nullptr));
      extend(b, op, op + 1, who, std::exchange(wait, {}), std::move(come));
      weights_->read(op);
    }
  }

  // Ranges that follow each other without waiting are one.
  void extend(size_t b, size_t first, size_t last, Who who, Events wait, Events come) {
    if (open_ && open_->batch == b && open_->last == first && open_->who == who && wait.empty() && come.empty()) {
      open_->last = last;
      return;
    }
    flush(nullptr);
    open_ = ServingRange{b, first, last, who, std::move(wait), std::move(come)};
  }

  // The rows of all tokens of a pass.
  void look_up(const LookedUp& from) {
    for (size_t b = 0; b < it_.batches.size(); ++b) {
      const size_t count = run_->embedded_rows(b);
      if (count == 0) continue;
      Copy rows{from.targets[b], 0, from.table, 0, row_size(from.format, from.columns)};
      rows.counts[0] = count;
      const Buffer ids = {nullptr, reinterpret_cast<char*>(run_->it.ids[b].data()), count * sizeof(int32_t)};
      rows.lookup = {ids, from.rows, from.columns, from.format};
      looked_up_[b] = copy(*lanes_.to_device, std::move(rows), &ServingSeconds::weights);
    }
  }

  // The moves of an operation's weights; what is signalled when they are there.
  std::shared_ptr<Event> bring_weights(const StreamedOperation& each, const Events& wait) {
    std::shared_ptr<Event> done;
    for (const Copy& move : each.moves) {
      Copy next = move;
      next.wait = wait;
      done = copy(*lanes_.to_device, std::move(next), &ServingSeconds::weights);
    }
    return done;
  }

  // What is signalled when all so far is done.
  std::shared_ptr<Event> mark() {
    auto done = std::make_shared<Event>();
    flush(done);
    return done;
  }

  void flush(const std::shared_ptr<Event>& done) {
    if (!open_) {
      if (done) lanes_.accelerator->submit({[] {}, {}, done});
      return;
    }
    Events wait = open_->wait;
    wait.insert(wait.end(), open_->come.begin(), open_->come.end());
    lanes_.accelerator->submit({[run = run_, o = *open_] { run->perform(o); }, std::move(wait), done});
    open_.reset();
  }

  const ServingLanes lanes_;
  const Shared run_;
  const ServingIteration& it_;
  std::vector<Events> back_;          // by sub-batch: outputs of the layer's attention that the host has
  std::shared_ptr<Event> stored_[2];  // by parity of the layer: that what passed through has left
  std::optional<ServingRange> open_;
  std::shared_ptr<Event> looked_up_[2];  // by sub-batch, that its tokens' rows have come; until they are waited for
  std::optional<WeightVisits> weights_;
};

}  // namespace

ServingPass::ServingPass(const ServingLanes& lanes, ServingIteration iteration)
    : lanes_(lanes), run_(std::make_shared<ServingRun>()) {
  check_lanes(lanes, iteration);
  for (Queue* queue : {lanes.accelerator, lanes.host})
    if (queue != nullptr) queue->collect();
  for (CopyEngine* engine : {lanes.to_host, lanes.to_device, lanes.queries, lanes.outputs})
    if (engine != nullptr) engine->collect();
  run_->it = std::move(iteration);
  run_->prepare();
  Submitter(lanes_, run_).all();
}

void ServingPass::wait() {
  for (const auto& event : run_->last) event->wait();
  lanes_.accelerator->check();
  if (lanes_.host != nullptr) lanes_.host->check();
}

ServingSeconds ServingPass::seconds() const {
  ServingSeconds found = run_->seconds;
  for (const auto& [part, span] : run_->copied) found.*part += span.end - span.start;
  for (const auto& each : run_->it.joining)
    if (each->joined) found.cpu_attention += each->host_seconds;
  return found;
}

const std::vector<int32_t>& ServingPass::chosen() const { return run_->chosen; }

}  // namespace helm
