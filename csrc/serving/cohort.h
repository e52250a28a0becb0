// Cohort: requests whose attention runs on the host, a layer in an iteration of the accelerator (APEX).
//
// In an iteration its rows join those of the accelerator's requests for the operations from `o` of one layer to
// `append` of the next. Then their queries, keys and values leave for the host, whose attention has until that place of
// the next iteration. When it is not done by then, the cohort joins an iteration later: the accelerator never waits,
// unless it has nothing else to do. A token begins with the embedding and ends with the head. Rows of a cohort may also
// stay in sub-batch 1 from their layer on, and are waited for there, so that what has been done for them is not lost.
// Several cohorts may be under way, each at a layer of its own; which of them the host serves first is theirs to say.
#pragma once
#include <memory>

#include "serving/serving.h"

namespace helm {

// Attention of a cohort's rows on its way: on the host, then what it gives over the link.
struct Attending {
  Event attended, landed;
  Span span{0, 0};  // of the attention
};

class Cohort {
 public:
  static constexpr size_t kNone = SIZE_MAX;

  // Bytes of `kept` for up to `rows` rows.
  static size_t size(Stage& stage, size_t rows);

  // `kept`: in the accelerator's memory, what is needed between iterations; `host`: a seat of its own; `stage`: the
  // accelerator's. `rise`: 1 where the host attends to first layers first, -1 to last ones, 0 as they come.
  Cohort(Seat host, Buffer kept, Stage& stage, int rise);

  // The layer whose attention is under way, or kNone: then its rows join at the embedding.
  size_t layer() const { return layer_; }
  // Whether nothing is under way, so that caches may change.
  bool landed() const { return under_way_ == nullptr || under_way_->landed.done(); }
  void wait() const {
    if (under_way_ != nullptr) under_way_->landed.wait();
  }
  // Forgets the token under way, which must have landed.
  void reset();

 private:
  friend struct Joining;
  // Where rows' hidden states, their queries, keys and values, and what attention gives begin in `kept`.
  size_t hidden(size_t row) const { return row * bytes_; }
  size_t sent(size_t row) const { return hidden(row) + hidden_; }
  size_t back(size_t row) const { return sent(row) + q_ + 2 * kv_; }

  Seat host_;
  Buffer kept_;
  size_t hidden_, q_, kv_, bytes_;
  size_t layer_ = kNone;
  int rise_;
  std::shared_ptr<Attending> under_way_;
};

// A cohort's rows in one iteration. Its methods are called on the accelerator's queue.
struct Joining {
  std::shared_ptr<Cohort> cohort;
  SharedRows joint;           // a sub-batch's rows, and behind them the cohort's
  SharedRows apart;           // those, as the host's caches have them; if they stay, of all the joint rows
  std::vector<size_t> kept;   // which of the rows that are under way they are; of a new token none
  size_t at = Cohort::kNone;  // the layer after whose attention they join
  bool waits = false;         // whether there is nothing else to do
  bool stays = false;         // whether they go on in sub-batch 1; else they join sub-batch 0 and leave again
  bool joined = false;        // whether the cohort went on in this iteration, or began
  double host_seconds = 0;    // of the attention that landed

  // Whether the cohort joins now; then its activations are in the seat's workspace.
  void enter(const Seat& seat);
  // Rows that went on to `layer` leave, and their attention begins.
  void leave(const std::shared_ptr<Joining>& self, const Seat& seat, const ServingLanes& lanes, size_t layer);
  size_t batch() const { return stays ? 1 : 0; }
  // Whether their rows are in their sub-batch after the attention of `layer`, and go on there.
  bool stays_after(size_t layer) const { return stays && layer != Cohort::kNone && layer >= at; }
  // The head has seen them.
  void end() { cohort->layer_ = Cohort::kNone, cohort->under_way_ = nullptr; }
};

}  // namespace helm
