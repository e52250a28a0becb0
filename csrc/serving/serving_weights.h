// Weights of a serving pass that come over the link, to sets of buffers that take turns.
//
// A set holds what one owner has brought: a stage of the plan, or an operation where nothing comes ahead. It stays
// there for a visit: from the first operation that reads it to the last one before those of another owner. Sub-batches
// that take turns may come back to an owner whose place another has taken; then what they read comes again.
#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "runtime/copy_engine.h"

namespace helm {

constexpr size_t kNoVisit = SIZE_MAX;

// What one operation reads of the set, and who brings it there.
struct StreamedOperation {
  size_t op, set, owner;  // op: of the accelerator's stage
  std::vector<Copy> moves;
};

// A token table of which the rows of a pass's tokens come, packed as copy_row() reads it.
struct LookedUp {
  Buffer table;
  size_t rows, columns;
  Format format;
  Buffer targets[2];  // of each sub-batch, row-major
};

struct StreamedWeights {
  // Throws std::invalid_argument when an operation comes twice.
  StreamedWeights(std::vector<StreamedOperation> operations, bool ahead, bool together, std::optional<LookedUp> table);

  const StreamedOperation* find(size_t op) const;

  std::vector<StreamedOperation> operations;
  bool ahead;     // they come as soon as their set is free, else when what is before the operation is done
  bool together;  // nothing begins before all that its owner brings is there
  std::optional<LookedUp> table;  // what the embedding has instead; comes before all else

 private:
  std::vector<size_t> by_op_;  // index among `operations`, plus 1
};

// The visits of one pass. `order`: operations as they will be submitted; `bring` submits the moves of one of them
// behind events and gives what is signalled when they are done; `mark`: what is signalled when all submitted so far is
// done.
class WeightVisits {
 public:
  using Bring = std::function<std::shared_ptr<Event>(const StreamedOperation&, const Events&)>;
  using Mark = std::function<std::shared_ptr<Event>()>;

  // Brings what every set has room for.
  WeightVisits(std::shared_ptr<const StreamedWeights> weights, const std::vector<size_t>& order, Bring bring,
               Mark mark);

  // What the next operation has to wait for, which is about to be submitted behind `wait`; events are told of once.
  Events come(size_t op, Events wait);
  // It has been submitted. After the last of a visit the next one to its set begins.
  void read(size_t op);

 private:
  struct Coming {
    const StreamedOperation* what;
    bool brought;
    std::shared_ptr<Event> done;  // until an operation waits for it
  };
  struct Visit {
    size_t set, owner, last = 0, next = kNoVisit;  // last: use; next: visit to the same set
    std::vector<Coming> coming = {};
  };
  struct Use {
    size_t op, visit;
  };

  void plan(const std::vector<size_t>& order);
  void bring(Visit& visit, const Events& wait);
  void bring(Coming& coming, const Events& wait);

  std::shared_ptr<const StreamedWeights> weights_;
  Bring bring_;
  Mark mark_;
  std::vector<Visit> visits_;  // by first use
  std::vector<Use> uses_;
  size_t next_ = 0;  // use
};

}  // namespace helm
