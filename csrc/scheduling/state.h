// State: the requests of one replica, where their caches are, and the pass that is being made or run.
//
// The life of a request: add -> waiting -> prompt (prompting) -> its last chunk yields the first token, and it decodes
// (on_gpu, on_cpu) -> ended. preempt: back to waiting, its cache given up. swap_out and swap_in: between the caches.
// A pass: begin, what a policy decides, then commit; add, cancel and finish come between passes. All sums are kept up
// to date by the change, never rebuilt; check() rebuilds and compares them.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "scheduling/blocks.h"
#include "scheduling/cohorts.h"
#include "scheduling/decision.h"
#include "scheduling/group.h"
#include "scheduling/limits.h"
#include "scheduling/prefix.h"
#include "scheduling/sequences.h"

namespace helm::scheduling {

// Where requests may keep their caches while they decode.
struct Homes {
  bool gpu = true, cpu = false;
};

// Order of waiting and of victims: smaller first, the last is the first victim.
using Rank = std::pair<int64_t, Id>;  // priority, number

// What a pass brought. A token that did not come one pass after the token before it is an `Odd` one.
struct Outcome {
  struct Odd {
    Id id;
    double gap;  // seconds since its token before
    bool on_cpu;
  };
  std::vector<Chunk> started;  // for the first time part of a pass; `past`: what was reused
  std::vector<Id> first;       // yielded their first token
  std::vector<Odd> odd;
  int64_t even = 0;  // tokens that came one pass after the token before
  std::vector<Id> finished;

  void clear() { started.clear(), first.clear(), odd.clear(), finished.clear(), even = 0; }
};

class State {
 public:
  // `hash_block`: tokens of a block of the prefix cache, a multiple of limits.block; 0: no prefix is reused. Where
  // limits.keeps its blocks are those of limits.block tokens, and each hash stands for several.
  State(const Limits& limits, Homes homes, Pool pool, int64_t hash_block = 0);

  // ---- Reading
  const Limits& limits() const { return limits_; }
  const Sequence& sequence(Id id) const { return sequences_[id]; }
  bool lives(Id id) const { return sequences_.lives(id); }
  Rank rank(Id id) const { return {sequences_[id].priority, id}; }
  int64_t cached(Id id) const;    // tokens in its cache
  int64_t produced(Id id) const;  // tokens yielded
  const std::set<Rank>& waiting() const { return waiting_; }
  const std::set<Rank>& swapped() const { return swapped_; }
  const std::vector<Id>& prompting() const { return prompting_; }  // by rank
  const Group& gpu() const { return group_; }
  const std::vector<Id>& cpu() const { return cpu_; }  // first in, first out: in the order in which they came here
  int64_t cpu_kv() const { return cpu_kv_; }           // tokens cached by all of cpu()
  const Cohorts& cohorts() const { return cohorts_; }
  // Whether requests of several priorities have come.
  bool ranked() const { return ranked_; }
  // Whether somebody waits with a better priority than that.
  bool outranks(int64_t priority) const { return !waiting_.empty() && waiting_.begin()->first < priority; }
  // Requests that hold one of limits().sequences places: those swapped out do not.
  int64_t running() const;
  bool empty() const { return running() == 0 && waiting_.empty() && swapped_.empty(); }
  const Blocks& blocks(Home home) const { return home == Home::gpu ? gpu_blocks_ : cpu_blocks_; }
  // Blocks that can be had: free ones, and those of prefixes that nobody holds.
  int64_t free(Home home) const;
  // Most blocks that requests held at a time.
  int64_t most_blocks(Home home) const { return most_[static_cast<size_t>(home)]; }
  // Whether the next one waiting wants as many blocks as long as nobody ends: who finds less of its prefix in the cache
  // may want fewer. So may who waits for others to make way.
  bool settled() const;
  // KV tokens that requests hold, shared ones once.
  int64_t tokens(Home home) const;

  // Tokens of a prompt with these hashes that the accelerator's cache has.
  int64_t reusable(Hashes hashes, int64_t prompt) const { return matched(hashes, prompt) * hash_block_; }
  // Tokens of its prompt that are still to be computed if it goes on with its cache at `home`, and how many of them at
  // most in one pass: where its state is to become a snapshot, a pass ends.
  int64_t prompt_left(Id id, Home home) const;
  int64_t prompt_part(Id id, Home home) const;
  // What prompt(id, count, home), decode_on_cpu(id), swap_in(id) or swap_out(id) take from free(...).
  int64_t prompt_blocks(Id id, int64_t count, Home home) const;
  int64_t cpu_decode_blocks(Id id) const;
  int64_t moved_blocks(Id id) const { return limits_.blocks(cached(id)); }
  // Whether the host has room for its cache, and its states where requests have some: for as many as may run.
  bool may_leave(Id id) const;

  // ---- Making a pass. std::logic_error where a policy asks for what cannot be, and then nothing has changed.
  void begin(double now);
  // Gives up its cache: `id`, in any state but waiting, waits to be computed again.
  void preempt(Id id);
  // The cache of `id`, which decodes on the accelerator, goes to the host. `pause`: it waits there to come back,
  // else it decodes on the host from now on.
  void swap_out(Id id, bool pause);
  // The cache of `id`, swapped or decoding on the host, comes back, and it decodes on the accelerator.
  void swap_in(Id id);
  // Everybody whose cache is on the accelerator decodes; to be called whenever there are any, after the moves above.
  void decode_on_gpu();
  // `count` more tokens of a prompt, begun or waiting. One that begins with home gpu finds what is reusable.
  void prompt(Id id, int64_t count, Home home);
  // `id` of cpu() decodes in sub-batch `half`. One of a cohort goes on from the layer it has reached (APEX-26).
  void decode_on_cpu(Id id, int half);
  // The pass is deferred: all cohorts go on whose attention is done, and `members` of cpu() begin another, if any.
  void defer(const std::vector<Id>& members, const Cost& believed);
  void set_kind(Kind kind) { decision_.kind = kind; }
  // The pass has been made up: which of its states become snapshots, and which snapshots are given up for them. To be
  // called once a policy has decided.
  void keep_snapshots();
  const Decision& decision() const { return decision_; }
  const Load& load() const { return load_; }

  // ---- What happens
  // Whether a request is within the context, and all of it but its last token has room in a cache where it may be.
  bool fits(int64_t prompt, int64_t output) const;
  // A request that fits.
  Id add(int64_t prompt, int64_t output, int64_t priority, Hashes hashes);
  // It is over, before its output is complete.
  void end(Id id);
  // The pass took `seconds` until `end`. `cost`: what the host needs for cohorts. `came`: who of them got a token with
  // the pass, for who knows better than these times.
  const Outcome& commit(double end, double seconds, const Cost& cost,
                        const std::optional<std::vector<Id>>& came = std::nullopt);
  // The pass does not happen: blocks for its tokens are given back. What moved has moved.
  void take_back();
  // After this pass, which is pure, come `more` like it, and commit() brings what the last one brings. Nobody's last
  // token comes before.
  void repeat(int64_t more);
  // Most passes that this one, which is pure, and such ones after it may be.
  int64_t repeats();
  // Between passes: gives up the prefix blocks that nobody holds.
  void forget_prefixes();

  // Between passes: throws std::logic_error unless all sums are what the requests say, and no cache holds more than it
  // has room for.
  void check() const;

 private:
  int64_t hash_blocks() const { return hash_block_ / limits_.block; }
  int64_t matched(Hashes hashes, int64_t prompt) const;
  int64_t matched(Id id) const { return matched(sequences_[id].hashes, sequences_[id].prompt); }
  // Blocks of its prompt that can be shared, and tokens up to which the cache has them.
  int64_t sharable(Id id) const;
  int64_t parting(Id id) const;
  // The block behind which its state after `cached` tokens becomes a snapshot, if it does.
  std::optional<int64_t> snapshot_at(Id id, int64_t cached) const;
  Blocks& mine(Home home) { return home == Home::gpu ? gpu_blocks_ : cpu_blocks_; }
  // Gives up some of the prefix blocks that nobody holds; there must be one.
  void evict();
  void take(Home home, int64_t count);
  bool kept_at(Home home) const { return home == Home::gpu ? homes_.gpu : homes_.cpu; }
  bool used(Id id) const { return sequences_[id].pass == pass_; }
  // Changes what `id`, not on_gpu, has cached.
  void set_cached(Id id, int64_t cached);
  void leave_gpu(Id id);
  void leave_cpu(Id id);
  void leave_cohort(Id id);
  void leave(Id id);
  void release(Id id);
  void reuse(Id id);
  void share(Id id);
  void name_blocks(Id id);
  void keep(Id id);
  void join_gpu(Id id);
  void join_cpu(Id id);
  void start(Id id);
  void yield_odd(Id id, double end, bool on_cpu);
  void finish(Id id);
  void commit_group(double end);
  void commit_cpu(Id id, double end);
  void commit_cohort(int64_t number, double end);
  std::vector<int64_t> cohorts_of(const std::vector<Id>& came) const;
  void commit_prompt(const Chunk& chunk, double end);

  Limits limits_;
  Homes homes_;
  int64_t hash_block_;
  int64_t parts_;        // blocks of hash_block_ tokens that a hash of a request stands for; 0: it has none
  int64_t unnamed_ = 0;  // blocks that have got a name of their own
  Sequences sequences_;
  Group group_;
  std::set<Rank> waiting_, swapped_;
  std::vector<Id> prompting_, cpu_;
  Cohorts cohorts_;
  Blocks gpu_blocks_, cpu_blocks_;
  Prefixes prefixes_;
  int64_t shared_ = 0;  // hash blocks held, by all requests
  int64_t cpu_kv_ = 0;
  std::array<int64_t, 3> kv_{};  // tokens cached by those not on_gpu, by home
  std::array<int64_t, 3> most_{};
  bool ranked_ = false;
  int64_t newest_priority_ = 0;
  double now_ = 0;
  int64_t pass_ = 0;  // the number of this one
  Decision decision_;
  Load load_;
  Outcome outcome_;
};

}  // namespace helm::scheduling
