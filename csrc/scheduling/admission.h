// Admission: who moves between the caches, and which prompts may join a pass (NEO 3.2, steps 2 and 3).
#pragma once
#include <cstdint>
#include <vector>

#include "scheduling/state.h"

namespace helm::scheduling {

// A prompt, or part of one, that the next pass may take.
struct Candidate {
  Chunk chunk;
  Work work;       // what it adds to a pass
  double advance;  // requests it counts for in x / T: the part of its prompt, 1 with the end of it (E-NEO-01)
  bool optional;   // begins now, with its cache at the host: nobody misses it (NEO-23)
};

class Admission {
 public:
  explicit Admission(Homes homes) : homes_(homes) {}

  // To be called first for a pass. With an accelerator, the host is for those whose cache is moved there and back no
  // slower than it is computed again, in full passes; over links that are slower only for those too long for the
  // accelerator's cache.
  void price(const State& state, const Cost& believed);

  // Who waits with a better priority than some that run makes them give up their caches until it may begin
  // (priorities.h). Then makes room for the next token of everybody on the accelerator: who came last goes to the host,
  // or gives up its cache where the host has no room. If nobody had to go, the longest waiting at the host come back
  // while a twentieth of the blocks stays free, or until the accelerator has one to work on.
  void move(State& state);

  // Prompts that have begun, and before each those that wait with a better priority; then the others that wait: in
  // order of rank, as many as requests, tokens and blocks allow. Those whose cache goes to the host come last of those.
  // Changes nothing. Valid until the next call.
  const std::vector<Candidate>& prompts(const State& state);

 private:
  struct Room {
    int64_t tokens, places, gpu, cpu;  // tokens of the pass, running requests, blocks
    int64_t kept;                      // blocks of `cpu` that are not for those who begin
  };

  void make_room(State& state) const;
  void bring_back(State& state) const;
  Room room(const State& state) const;
  bool may_begin(const State& state);
  bool begun(const State& state, Id id, Room& room);
  bool begin(const State& state, Id id, Room& room);
  bool may_move(const State& state, Id id) const;
  Home home_for(const State& state, Id id, const Room& room) const;
  void add(const State& state, Id id, int64_t count, Home home, bool optional, Room& room);

  Homes homes_;
  bool near_ = true;  // the host is worth the way
  std::vector<Candidate> prompts_;
};

}  // namespace helm::scheduling
