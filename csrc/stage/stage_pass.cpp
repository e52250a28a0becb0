#include "stage/stage_pass.h"

#include <algorithm>
#include <cstdint>

#include "kernels/isa.h"
#include "formats/pack.h"

namespace helm {
namespace {

// The matrix whose product a step adds to hidden states, null for other steps; it may have some of its rows only.
const Matrix* added_to_hidden(const Step& step) {
  return step.op == Op::o ? &*step.block->o : step.op == Op::down ? &*step.block->down : nullptr;
}

}  // namespace

StagePass::StagePass(Stage& stage, const StageIo& io, size_t thread)
    : stage_(stage),
      spec_(stage.spec_),
      work_(stage.workspace_),
      pool_(stage.pool_),
      k_(kernels()),
      io_(io),
      thread_(thread),
      threads_(stage.pool_.threads()),
      scratch_(stage.pool_.scratch(thread)),
      last_(now()) {}

void StagePass::done() {
  if (thread_ == 0) {
    const double time = now();
    stage_.seconds_[op_] += time - last_;
    last_ = time;
  }
  ++op_;
}

void StagePass::done_by_all() {
  pool_.barrier();
  done();
}

void StagePass::chunk(size_t first, size_t count) {
  first_ = first, count_ = count, rows_ = spec_.batch * count, op_ = io_.begin, input_ = {};
  if (io_.source != nullptr && !stage_.embeds(io_.begin)) load();
  while (op_ < io_.end) {
    const Step& next = stage_.steps_[op_];
    const bool output = next.op == Op::final_norm || next.op == Op::head;  // of each sequence's last token only
    if (output && first + count < io_.tokens) break;
    step(next);
  }
  if (io_.target != nullptr && !stage_.chooses(io_.end)) store();
}

void StagePass::step(const Step& step) {
  if (step.op == Op::embedding) return embed();
  if (step.op == Op::final_norm) return final_norm();
  if (step.op == Op::head) return head();
  const BlockSpec& b = *step.block;
  const size_t hidden = spec_.hidden, kv = spec_.attention.kv_width(), q = spec_.attention.q_width();
  switch (step.op) {
    case Op::norm1:
      input_ = normed(*b.norm1, false);
      return done();
    case Op::q:
      linear(*b.q, work_.q, q, rows_, false);
      return done();
    case Op::k:
      linear(*b.k, work_.k, kv, rows_, false);
      return done();
    case Op::v:
      linear(*b.v, work_.v, kv, rows_, false);
      return done_by_all();
    case Op::append:
      return append(b);
    case Op::attention:
      return attend(b);
    case Op::o:
      linear_from(*b.o, work_.wide, work_.hidden, hidden, rows_, true);
      return done_by_all();
    case Op::norm2:
      input_ = normed(*b.norm2, false);
      return done();
    case Op::gate:
      return gate(b);
    case Op::up:
      return up(b);
    case Op::down:
      return down(b);
    default:
      return divided(step);
  }
}

// Of hidden states, the columns that this range reads: norms all of them, products those that they add to, and what
// stores whole rows all of them. Others may be on their way here meanwhile.
Range StagePass::columns_read() const {
  const bool stores = io_.target != nullptr && !stage_.chooses(io_.end);
  if (stores && added_to_hidden(stage_.steps_[io_.end - 1]) == nullptr) return {0, spec_.hidden};
  Range read{spec_.hidden, 0};
  for (size_t op = io_.begin; op < io_.end; ++op) {
    const Step& step = stage_.steps_[op];
    if (const Matrix* part = added_to_hidden(step); part != nullptr)
      read = {std::min(read.begin, part->first), std::max(read.end, part->first + part->rows)};
    else if (step.op == Op::norm1 || step.op == Op::norm2 || step.op == Op::final_norm)
      return {0, spec_.hidden};
  }
  return read;
}

void StagePass::load() {
  const auto* source = static_cast<const float*>(io_.source);
  const Range share = mine(rows_), columns = columns_read();
  for (size_t row = share.begin; row < share.end && columns.begin < columns.end; ++row) {
    const size_t from = row / count_ * io_.tokens + first_ + row % count_;
    memcpy(work_.hidden + row * spec_.hidden + columns.begin, source + from * spec_.hidden + columns.begin,
           (columns.end - columns.begin) * sizeof(float));
  }
  pool_.barrier();
}

void StagePass::embed() {
  const auto* ids = static_cast<const int32_t*>(io_.source);
  const Matrix& table = *spec_.embedding;
  const Range share = mine(rows_);
  for (size_t row = share.begin; row < share.end; ++row) {
    const size_t at = row / count_ * io_.tokens + first_ + row % count_;
    float* hidden = work_.hidden + row * spec_.hidden;
    if (spec_.looked_up)
      widen_row(static_cast<const char*>(table.weights) + at * row_size(table.format, spec_.hidden), table.format,
                spec_.hidden, hidden);
    else
      unpack_row(table.weights, table.format, spec_.hidden, static_cast<size_t>(ids[at]), hidden);
    if (spec_.positions != nullptr) k_.add(hidden, spec_.positions + position(row) * spec_.hidden, spec_.hidden);
  }
  done_by_all();
}

// The last operation has been stamped; what copying out takes belongs to it. Of a part its own columns are copied:
// others come from where they were made.
void StagePass::store() {
  const Step& last = stage_.steps_[io_.end - 1];
  const Matrix* part = added_to_hidden(last);
  const size_t first = part ? part->first : 0, columns = part ? part->rows : spec_.hidden;
  auto* target = static_cast<float*>(io_.target) + first;
  const float* source = work_.hidden + first;
  const Range share = mine(rows_);
  for (size_t row = share.begin; row < share.end; ++row) {
    const size_t to = row / count_ * io_.tokens + first_ + row % count_;
    memcpy(target + to * spec_.hidden, source + row * spec_.hidden, columns * sizeof(float));
  }
  op_ = io_.end - 1;
  done_by_all();
}

StagePass::Input StagePass::normed(const NormWeights& weights, bool of_outputs) {
  const size_t rows = of_outputs ? outputs() : rows_;
  const auto one = [&](size_t row, float* out) {
    const float* x = work_.hidden + (of_outputs ? output_row(row) : row) * spec_.hidden;
    k_.norm(spec_.norm, x, weights.weight, weights.bias, spec_.norm_eps, spec_.hidden, out);
  };
  if (rows == 1) {
    float* own = io_.part && thread_ == 0 ? work_.wide : scratch_ + kLinearScratch;
    one(0, own);
    return {own};
  }
  const Range share = mine(rows);
  for (size_t row = share.begin; row < share.end; ++row) one(row, work_.wide + row * spec_.hidden);
  pool_.barrier();
  return {work_.wide};
}

// One row's words are packed by each thread for itself, which costs less than a barrier.
const void* StagePass::packed(Input& input, InputKind kind, size_t rows, size_t columns) {
  if (input.packed != nullptr && input.kind == kind) return input.packed;
  if (rows > 1 && input.packed != nullptr) pool_.barrier();  // others may still read what is packed otherwise
  input.kind = kind;
  if (rows == 1) {
    float* own = scratch_ + kLinearScratch + spec_.hidden;
    return input.packed = pack_share(k_, kind, 0, 1, input.x, 1, columns, own);
  }
  input.packed = pack_share(k_, kind, thread_, threads_, input.x, rows, columns, work_.packed);
  pool_.barrier();
  return input.packed;
}

void StagePass::linear(const Matrix& m, float* y, size_t width, size_t rows, bool accumulate) {
  if (input_.x == nullptr) input_ = {work_.wide};
  multiply(m, input_, y, width, rows, accumulate);
}

void StagePass::linear_from(const Matrix& m, const float* x, float* y, size_t width, size_t rows, bool accumulate) {
  Input input{x};
  multiply(m, input, y, width, rows, accumulate);
}

void StagePass::multiply(const Matrix& m, Input& input, float* y, size_t width, size_t rows, bool accumulate) {
  const void* x = packed(input, input_kind(k_, m.format, m.activations, rows), rows, m.columns);
  linear_share(k_, thread_, threads_, m, x, y, width, rows, accumulate, scratch_);
}

void StagePass::attend(const BlockSpec& b) {
  if (io_.ragged != nullptr) return attend_each(b);
  const size_t past = io_.past + first_;
  const KvSpan span{b.keys.data(), b.values.data(), 0, past + count_};
  attention_share(k_, pool_, thread_, spec_.attention,
                  {{&span, 1}, spec_.batch, count_, past, work_.q, work_.wide, {nullptr, nullptr, true, true}});
  done_by_all();
}

// A sequence at a time, so that what it gets does not depend on the others.
void StagePass::attend_each(const BlockSpec& b) {
  const size_t width = spec_.attention.q_width(), own = spec_.attention.capacity;
  std::vector<KvSpan>& spans = stage_.spans_[thread_];
  for (const RaggedSequence& s : io_.ragged->sequences) {
    spans.clear();
    for (const CacheRun* run = io_.ragged->runs_of(s); run < io_.ragged->runs_of(s) + s.runs; ++run)
      spans.push_back(run->row < own ? KvSpan{b.keys.data(), b.values.data(), run->position, run->count, run->row}
                                     : KvSpan{b.passing_keys.data(), b.passing_values.data(), run->position, run->count,
                                              run->row - own});
    const AttentionCall call{
        {spans.data(), spans.size()},  1, s.tokens, s.past, work_.q + s.first * width, work_.wide + s.first * width,
        {nullptr, nullptr, true, true}};
    if (attention_share(k_, pool_, thread_, spec_.attention, call)) pool_.barrier();
  }
  done_by_all();
}

void StagePass::divided(const Step& step) {
  const BlockSpec& b = *step.block;
  const Range heads = step.op == Op::wv ? b.weighted_heads : b.scores_heads;
  const auto share = step.op == Op::scores ? scores_share : step.op == Op::wv ? weighted_share : softmax_share;
  share(k_, pool_, thread_, spec_.attention,
        {b.keys.data(), b.values.data(), spec_.batch, count_, io_.past + first_, heads, work_.q, work_.scores,
         work_.wide});
  done_by_all();
}

void StagePass::gate(const BlockSpec& b) {
  linear(*b.gate, work_.gate, spec_.ffn, rows_, false);
  // `up` activates its rows with the gate's: this thread's own, if both are the same part.
  const bool alike = b.up && b.up->first == b.gate->first && b.up->rows == b.gate->rows;
  alike ? done() : done_by_all();
}

void StagePass::up(const BlockSpec& b) {
  linear(*b.up, work_.up, spec_.ffn, rows_, false);
  const Range own = rows_of(*b.up, thread_, threads_);
  for (size_t row = 0; row < rows_ && own.begin < own.end; ++row) {
    const size_t at = row * spec_.ffn + b.up->first + own.begin;
    k_.activate(spec_.activation, spec_.gated ? work_.gate + at : nullptr, work_.up + at, own.end - own.begin);
  }
  done_by_all();
}

void StagePass::down(const BlockSpec& b) {
  linear_from(*b.down, work_.up, work_.hidden, spec_.hidden, rows_, true);
  done_by_all();
}

// Transposed, a head's rows follow each other, so that cache lines of K stay while its positions are filled.
void StagePass::append(const BlockSpec& b) {
  const size_t heads = spec_.attention.kv_heads;
  const Range share = mine(rows_ * heads);
  for (size_t item = share.begin; item < share.end; ++item)
    spec_.divided ? append_heads(b, item % rows_, item / rows_) : append_heads(b, item / heads, item % heads);
  done_by_all();
}

void StagePass::rotate(float* head, size_t position) {
  const size_t half = spec_.rotary_dim / 2;
  if (half > 0) k_.rope(head, spec_.cos + position * half, spec_.sin + position * half, half);
}

// QK norm and rotation of one key head and its query heads, and the new key and value into the cache.
void StagePass::append_heads(const BlockSpec& b, size_t row, size_t kv_head) {
  const Attention& s = spec_.attention;
  const auto prepare = [&](float* head, const std::optional<NormWeights>& weights) {
    if (weights) k_.norm(spec_.norm, head, weights->weight, weights->bias, spec_.norm_eps, s.head_dim, head);
    rotate(head, position(row));
  };
  float* q = work_.q + row * s.q_width() + kv_head * s.group() * s.head_dim;
  for (size_t g = 0; g < s.group(); ++g) prepare(q + g * s.head_dim, b.q_norm);
  float* key = work_.k + row * s.kv_width() + kv_head * s.head_dim;
  prepare(key, b.k_norm);
  const float* value = work_.v + row * s.kv_width() + kv_head * s.head_dim;
  write(b, row, kv_head, key, value);
  keep(b.kept_keys, row, kv_head, key);
  keep(b.kept_values, row, kv_head, value);
}

void StagePass::write(const BlockSpec& b, size_t row, size_t kv_head, const float* key, const float* value) {
  const Attention& s = spec_.attention;
  const size_t cached = io_.ragged != nullptr ? io_.ragged->cached[row] : position(row) % s.capacity;
  if (cached == kNowhere) return;
  const bool passing = cached >= s.capacity;
  const size_t sequence = row / count_, at = (passing ? cached - s.capacity : cached) * row_size(s.format, s.head_dim);
  const HeadCache& keys = (passing ? b.passing_keys : b.keys)[kv_head];
  const HeadCache& values = (passing ? b.passing_values : b.values)[kv_head];
  if (spec_.divided)
    append_transposed(keys, row, key);
  else
    k_.write_row(s.format, key, s.head_dim, keys.data + sequence * keys.sequence + at);
  k_.write_row(s.format, value, s.head_dim, values.data + sequence * values.sequence + at);
}

void StagePass::keep(const KeptHeads& kept, size_t row, size_t kv_head, const float* values) {
  if (kept.empty() || kept[kv_head].data == nullptr) return;
  const Attention& s = spec_.attention;
  const KeptHead& head = kept[kv_head];
  char* to = head.data + row / count_ * head.sequence + position(row) * head.token;
  head.groups ? k_.compress_row(values, s.head_dim, to) : k_.write_row(s.format, values, s.head_dim, to);
}

void StagePass::append_transposed(const HeadCache& keys, size_t row, const float* key) {
  const Attention& s = spec_.attention;
  const size_t width = size_of(s.format), column = s.capacity * width;
  char* to = keys.data + row / count_ * keys.sequence + position(row) * width;
  const char* from = reinterpret_cast<const char*>(scratch_);
  k_.narrow(s.format, key, s.head_dim, scratch_);
  for (size_t d = 0; d < s.head_dim; ++d) memcpy(to + d * column, from + d * width, width);
}

void StagePass::final_norm() {
  input_ = normed(*spec_.final_norm, true);
  done();
}

void StagePass::head() {
  linear(*spec_.head, work_.logits, spec_.vocab, outputs(), false);
  if (io_.target != nullptr) choose();
  done();
}

// Greedy: each thread's best row, then the best of those; the lowest index wins a tie.
void StagePass::choose() {
  const Range rows = rows_of(*spec_.head, thread_, threads_);
  Stage::Best* best = stage_.best_.data();
  const size_t sequences = outputs();
  for (size_t b = 0; b < sequences; ++b) {
    const float* own = work_.logits + b * spec_.vocab + rows.begin;
    if (rows.begin >= rows.end) continue;
    const size_t index = k_.argmax(own, rows.end - rows.begin);
    best[thread_ * sequences + b] = {own[index], rows.begin + index};
  }
  pool_.barrier();
  if (thread_ != 0) return;
  for (size_t b = 0; b < sequences; ++b) {
    const Stage::Best* chosen = nullptr;
    for (size_t t = 0; t < threads_; ++t) {
      const Range share = rows_of(*spec_.head, t, threads_);
      const Stage::Best* candidate = best + t * sequences + b;
      if (share.begin < share.end && (chosen == nullptr || candidate->value > chosen->value)) chosen = candidate;
    }
    static_cast<int32_t*>(io_.target)[b] = static_cast<int32_t>(chosen->index);
  }
}

}  // namespace helm
