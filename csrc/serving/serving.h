// Serving: one iteration of many requests over all layers, as items of queues and copy engines.
//
// Rows of a sub-batch go through the accelerator's stage together; those at its end belong to requests whose keys and
// values are in the host's memory: their queries, keys and values go over the link, the host appends and attends, and
// what attention gives comes back before the operation `o`. Two sub-batches take turns on the accelerator, so that the
// host works for one while the accelerator works for the other (NEO); the head sees both together, once. Cohorts go
// on by a layer in an iteration, and the accelerator does not wait for them (APEX): see cohort.h.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "runtime/copy_engine.h"
#include "runtime/queue.h"
#include "stage/stage.h"

namespace helm {

struct Joining;
struct ServingRun;
struct StreamedWeights;

// What works; all but `accelerator` may be missing where nothing is the host's.
struct ServingLanes {
  Queue *accelerator, *host;
  CopyEngine *to_host, *to_device;  // keys and values of whole requests; to the device also weights
  CopyEngine *queries, *outputs;    // activations: to the host, and back
};

// A stage, the memory of its activations, and where in it they are.
struct Seat {
  Stage* stage = nullptr;
  Buffer workspace = {};
  Region hidden = {}, q = {}, k = {}, v = {}, attended = {};

  Seat() = default;
  Seat(Stage& stage, Buffer workspace);
  // Throws std::invalid_argument where q, k, v and attended are not in the same places in all blocks, so that their
  // rows cannot cross.
  void check_crosses() const;
  char* at(const Region& region, size_t row) const { return workspace.data + offset(region, row); }
  static size_t offset(const Region& region, size_t row) { return region.offset + row * region.stride; }
};

using SharedRows = std::shared_ptr<const Ragged>;

struct SubBatch {
  Seat seat;
  SharedRows rows;
  Seat host;         // of its last rows
  SharedRows apart;  // those, as the host's caches have them; or null
};

// One side of copies: what belongs to layer l begins l % layers times `stride` bytes from the buffer's start.
struct LayerSide {
  Buffer buffer;
  size_t stride, layers;
};

// The same pieces for every layer; none: nothing is copied.
struct LayerCopies {
  LayerSide source, target;
  std::vector<Piece> pieces;
};

// Who looks up, behind the router of a block, which experts rows of a sub-batch have chosen: lets the stage compute
// some of them, and says whether others remain. Then those are computed, and it is asked again. Called by the
// accelerator's queue. `joined`: for which the operation `combine` of the block waits where others compute some of what
// was asked for; or null.
struct ExpertLookup {
  size_t block;
  std::function<bool(size_t batch, size_t rows)> ask;
  std::shared_ptr<Event> joined;
};

struct ServingIteration {
  size_t layers;
  std::vector<SubBatch> batches;  // one or two; the second one's stage needs no head
  std::vector<int32_t> ids[2];    // by sub-batch: of every row, also of those that join at the embedding
  LayerCopies swap_out, swap_in;  // before anything else of a layer
  LayerCopies fetch, store;       // before and after attention: of prompts whose caches only pass through
  std::shared_ptr<const StreamedWeights> weights;  // those that come over the link; or null
  std::vector<ExpertLookup> lookups;               // by block
  // Rows of cohorts behind those of a sub-batch, by layer; of those that leave again only one at a layer.
  std::vector<std::shared_ptr<Joining>> joining;
};

// Seconds that parts took, added up over layers. Operations that waited for their weights took that time too, which are
// on their way for `weights`.
struct ServingSeconds {
  double linear[2] = {0, 0}, ends = 0, gpu_attention = 0, cpu_attention = 0;
  double to_host = 0, to_device = 0, swap_out = 0, swap_in = 0, weights = 0;
};

// An iteration that has been submitted; what it works with must outlive it.
class ServingPass {
 public:
  // Throws std::invalid_argument for rows that stages cannot run, or lanes that are missing.
  ServingPass(const ServingLanes& lanes, ServingIteration iteration);

  // Blocks until it is done but for what cohorts have under way, then throws what an item threw.
  void wait();

  ServingSeconds seconds() const;
  const std::vector<int32_t>& chosen() const;  // by output, those of sub-batch 0 first, once done

 private:
  ServingLanes lanes_;
  std::shared_ptr<ServingRun> run_;
};

}  // namespace helm
