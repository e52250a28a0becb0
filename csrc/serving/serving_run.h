// ServingRun: what the items of a submitted iteration share, and what one of them does.
#pragma once
#include <deque>
#include <utility>

#include "runtime/clock.h"
#include "serving/cohort.h"
#include "serving/serving_weights.h"

namespace helm {

// A part of the seconds.
using Part = double ServingSeconds::*;

// Whose rows a range of operations is for: the sub-batch's; those that have joined as well; those, if they do; outputs
// of both.
enum class Whose { own, joint, perhaps, ends };

struct Who {
  Whose whose = Whose::own;
  const Joining* joining = nullptr;

  bool operator==(const Who& other) const { return whose == other.whose && joining == other.joining; }
};

// Operations [first, last) of a sub-batch's stage, after `wait`, and after weights of the first have come.
struct ServingRange {
  size_t batch, first, last;
  Who who;
  Events wait, come;
};

// Operations of a sub-batch's stage: a router, the last product of its experts, or the router again where the stage
// has none of them, and what adds up what others have computed, kNone where none do.
struct RoutedExperts {
  static constexpr size_t kNone = SIZE_MAX;

  size_t router, last, combine;
  const ExpertLookup* lookup;
};

// Each field is written by one thread, and read when all is done.
struct ServingRun {
  ServingIteration it;
  SharedRows ends;  // of two sub-batches: outputs of both, in the workspace of the first
  std::vector<int32_t> chosen;
  ServingSeconds seconds;
  std::deque<std::pair<Part, Span>> copied;  // what a copy's seconds are part of, and when it was
  Events last;
  double ended = now();                  // when the accelerator was done with what it had
  std::vector<RoutedExperts> routed[2];  // by sub-batch, in order: where experts are looked up

  // Who joins sub-batch `b` after the attention of `layer`, kNone: with the embedding.
  std::vector<std::shared_ptr<Joining>> entering(size_t b, size_t layer) const;
  // The last of those who have joined sub-batch `b` by then and stay, or null.
  const Joining* staying(size_t b, size_t layer) const;
  // Rows of sub-batch `b` at its end, where none of them leave again.
  const Ragged& last_rows(size_t b) const {
    const Joining* last = staying(b, it.layers - 1);
    return last != nullptr ? *last->joint : *it.batches[b].rows;
  }

  // Rows of sub-batch `b` that have a token: with those who join at the embedding.
  size_t embedded_rows(size_t b) const;
  // Whether sub-batch `b` has anything to compute.
  bool computes(size_t b) const;
  // Whether anybody's logits are wanted.
  bool yields() const;
  // Operations of the accelerator in the order of its sub-batches' turns.
  std::vector<size_t> order() const;

  // Throws std::invalid_argument for what stages cannot run, and lays out `ends`.
  void prepare();
  // On the accelerator's queue.
  void perform(const ServingRange& range);
  // Hidden states of the second sub-batch's outputs go to where `ends` has them.
  void gather() const;

 private:
  void check(size_t b) const;
  void check_weights() const;
  void place_lookups(size_t b);
  // Has the experts of some rows looked up, and computes all but the last of them that come here in turns.
  void look_up(size_t b, const RoutedExperts& experts, const Ragged& rows);
  // Seconds until experts that others compute have joined.
  static double join(const RoutedExperts& experts);
  // Operations [first, last) of a sub-batch for some rows; `waiting`: seconds that are the first one's too.
  void compute(size_t b, const Ragged& rows, size_t first, size_t last, double waiting);
  // Seconds for which nothing but weights kept the accelerator from a range.
  double waited(const ServingRange& range) const;
};

}  // namespace helm
