#include "stage/recurrent_operation.h"

#include <algorithm>

#include "stage/stage_pass.h"

namespace helm {
namespace {

// Calls use(run) for the tokens of every sequence of the rows of a pass.
template <class Use>
void for_sequences(const StagePass& pass, const States& states, const Use& use) {
  if (const Ragged* ragged = pass.io().ragged) {
    for (const RaggedSequence& s : ragged->sequences) use(StateRun{s.first, s.tokens, s.past, states.of(s.slot)});
    return;
  }
  for (size_t b = 0; b < pass.batch(); ++b)
    use(StateRun{b * pass.count(), pass.count(), pass.io().past + pass.first(), states.of(b)});
}

void check_states(const std::string& name, const States& states, size_t width, const StageSpec& spec) {
  if (states.data == nullptr) return;
  const size_t sequences = std::max(spec.batch, spec.sequences > 0 ? size_t{1} : spec.batch);
  expect(
      states.width == width && states.count >= sequences,
      name + " needs states of " + std::to_string(width) + " numbers for " + std::to_string(sequences) + " sequences");
  expect(states.snapshots == 0 || (spec.sequences == 0 && states.count / spec.batch > states.snapshots),
         name + " needs rows for " + std::to_string(states.snapshots) + " snapshots of every sequence of a batch");
}

// Tokens of a pass that go through a state one by one.
size_t single_tokens(const States& states, size_t tokens) { return std::min(states.snapshots, tokens - 1); }

StateRun part_of(const StateRun& run, size_t from, size_t count) {
  return {run.first + from, std::min(count, run.tokens - from), run.past + from, run.state};
}

}  // namespace

void ConvolutionOperation::check(const StageSpec& spec) const {
  expect(taps >= 2 && taps <= kMostTaps, name + " sees 2 to " + std::to_string(kMostTaps) + " tokens");
  const size_t width = reads[0].width;
  expect(at <= width && channels <= width - at, name + " has channels that its input does not have");
  expect(gates ? width == 3 * channels && leaves[0].width == channels && leaves[0].name != reads[0].name
               : leaves[0].name == reads[0].name,
         name + " leaves its input convolved, or, with gates, a third of it");
  check_states(name, states, (taps - 1) * channels, spec);
}

// Every thread has channels of its own, through all of it.
void ConvolutionOperation::run(StagePass& pass) const {
  if (factors != nullptr) {
    const Range rows = pass.mine(pass.rows());
    for (size_t row = rows.begin; row < rows.end; ++row)
      pass.k().mixers().multiply(reads[0].at + row * reads[0].width, factors, reads[0].width);
    pass.barrier();
  }
  const Range own = channels_of(channels, pass.thread(), pass.threads());
  size_t sequence = 0;
  for_sequences(pass, states, [&](const StateRun& run) {
    if (own.begin >= own.end) return;
    const size_t single = single_tokens(states, run.tokens);
    for (size_t t = 0; t < single; ++t) {
      convolve(pass, part_of(run, t, 1), own);
      keep(run.state, states.behind(t, sequence, pass.batch()), own);
    }
    convolve(pass, part_of(run, single, run.tokens), own);
    ++sequence;
  });
  pass.done_by_all();
}

void ConvolutionOperation::keep(const float* state, float* snapshot, Range own) const {
  for (size_t tap = 0; tap + 1 < taps; ++tap)
    std::copy(state + tap * channels + own.begin, state + tap * channels + own.end,
              snapshot + tap * channels + own.begin);
}

void ConvolutionOperation::convolve(StagePass& pass, const StateRun& run, Range own) const {
  const size_t count = own.end - own.begin, wide = reads[0].width, stride = leaves[0].width;
  const float* input = reads[0].at + run.first * wide;
  float* x = leaves[0].at + run.first * stride + (gates ? 0 : at);
  if (run.past == 0)
    for (size_t tap = 0; tap + 1 < taps; ++tap) std::fill_n(run.state + tap * channels + own.begin, count, 0.0f);
  for (size_t t = 0; gates && t < run.tokens; ++t) {
    std::copy_n(input + t * wide + 2 * channels + own.begin, count, x + t * stride + own.begin);
    pass.k().mixers().multiply(x + t * stride + own.begin, input + t * wide + own.begin, count);
  }
  pass.k().mixers().convolve(
      {x, stride, run.tokens, channels, own.begin, own.end, weights, bias, run.state, taps, silu});
  for (size_t t = 0; gates && t < run.tokens; ++t)
    pass.k().mixers().multiply(x + t * stride + own.begin, input + t * wide + channels + own.begin, count);
}

void RecurrenceOperation::check(const StageSpec& spec) const {
  helm::check(shape);
  const size_t width = reads[0].width, inner = shape.value_heads * shape.value_dim,
               keyed = shape.key_heads * shape.key_dim;
  const auto within = [&](size_t begin, size_t count) { return begin <= width && count <= width - begin; };
  expect(within(queries, keyed) && within(keys, keyed) && within(values, inner) && leaves[0].width == inner,
         name + " has queries, keys or values that its input does not have");
  expect(reads.size() == (corrects() ? 3 : 1) && leaves.size() == (corrects() ? 1 : 2),
         name + " has decays and rates of its own, or leaves them");
  expect((corrects() ? reads[1].width : leaves[1].width) == decays(), name + " has other decays than heads");
  expect(corrects() ? reads[2].width == shape.value_heads : within(steps, shape.value_heads),
         name + " has other rates than heads");
  check_states(name, states, shape.value_heads * shape.key_dim * shape.value_dim, spec);
}

// Its scratch may be where the only row of a norm is: whoever comes later reads that in the workspace.
void RecurrenceOperation::run(StagePass& pass) const {
  pass.forget_input();
  const Range share = pass.mine(pass.rows());
  for (size_t row = share.begin; row < share.end; ++row) prepare(pass, row);
  const size_t single = states.snapshots == 0 ? 0 : single_tokens(states, pass.count());
  for (size_t t = 0; t < single; ++t) {
    recur(pass, t, 1);
    pass.barrier();  // others have computed what this thread copies, and wait until it has
    const Range own = pass.mine(pass.batch() * states.width);
    std::copy(states.data + own.begin, states.data + own.end, states.behind(t, 0, pass.batch()) + own.begin);
  }
  recur(pass, single, SIZE_MAX);
  pass.done_by_all();
}

void RecurrenceOperation::recur(StagePass& pass, size_t from, size_t count) const {
  std::vector<RecurrenceRun> runs;
  for_sequences(pass, states, [&](const StateRun& run) {
    const Range own = pass.mine(states.width);
    if (run.past + from == 0) std::fill_n(run.state + own.begin, own.end - own.begin, 0.0f);
    runs.push_back(run_of(part_of(run, from, count)));
  });
  pass.barrier();
  recur_share(pass.k().mixers(), pass.thread(), pass.threads(), shape, runs.data(), runs.size(), pass.scratch());
}

// Decays and rates of a token.
void RecurrenceOperation::prepare(StagePass& pass, size_t row) const {
  const MixerKernels& k = pass.k().mixers();
  const size_t heads = shape.value_heads, per = shape.per_dimension ? shape.key_dim : 1;
  if (!corrects()) {
    float* dt = reads[0].at + row * reads[0].width + steps;
    return k.decays({dt, offsets, rates, heads, 1, longest, dt, leaves[1].at + row * heads});
  }
  float* decay = reads[1].at + row * decays();
  k.decays({decay, offsets, rates, decays(), per, longest, nullptr, decay});
  float* rate = reads[2].at + row * heads;
  std::fill_n(pass.scratch(), heads, 1.0f);
  k.gate(GateKind::sigmoid, pass.scratch(), rate, heads);
  std::copy_n(pass.scratch(), heads, rate);
}

RecurrenceRun RecurrenceOperation::run_of(const StateRun& run) const {
  const size_t width = reads[0].width, heads = shape.value_heads;
  const float* input = reads[0].at + run.first * width;
  const float* decay = (corrects() ? reads[1].at : leaves[1].at) + run.first * decays();
  const float* rate = corrects() ? reads[2].at + run.first * heads : input + steps;
  return {input + queries,
          input + keys,
          input + values,
          decay,
          rate,
          passing,
          leaves[0].at + run.first * leaves[0].width,
          run.state,
          width,
          width,
          decays(),
          corrects() ? heads : width,
          leaves[0].width,
          run.tokens};
}

void GatedNormOperation::check(const StageSpec&) const {
  expect(groups > 0 && reads[0].width % groups == 0 && leaves[0].name == reads[0].name,
         name + " norms equal groups of a value in place");
  expect(at <= reads[1].width && reads[0].width <= reads[1].width - at, name + " has a gate of its own width");
}

void GatedNormOperation::run(StagePass& pass) const {
  const Range share = pass.mine(pass.rows());
  const size_t width = reads[0].width;
  for (size_t row = share.begin; row < share.end; ++row) {
    float* x = reads[0].at + row * width;
    const float* z = reads[1].at + row * reads[1].width + at;
    if (eps)
      pass.k().mixers().gated_norm({x, z, weights, x, groups, width / groups, *eps, gate, gate_first, own_weights});
    else
      pass.k().mixers().gate(gate, x, z, width);
  }
  pass.done_by_all();
}

}  // namespace helm
