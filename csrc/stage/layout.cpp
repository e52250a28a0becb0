#include "stage/layout.h"

#include <algorithm>

#include "formats/shape.h"

namespace helm {

size_t chunk_tokens(const StageSpec& s) {
  return s.sequences > 0 ? s.max_tokens : std::max<size_t>(1, s.chunk_rows / s.batch);
}

size_t chunk_rows(const StageSpec& s) {
  if (s.sequences > 0) return s.max_tokens;
  return product({s.batch, std::min(s.max_tokens, chunk_tokens(s))});
}

size_t outputs_of(const StageSpec& s) { return s.sequences > 0 ? s.sequences : product({s.batch, s.last}); }

namespace {

// The values of the body that operations belong to, one after the other.
class Body {
 public:
  struct Part {
    std::string name;
    size_t width, begin;
  };

  // Returns the floats of a row before the value.
  size_t add(const std::string& op, const Value& value) {
    for (const Part& part : parts_)
      if (part.name == value.name) {
        expect(part.width == value.width, op + " has " + value.name + " of " + std::to_string(value.width) +
                                              " values a row, others of " + std::to_string(part.width));
        return part.begin;
      }
    parts_.push_back({value.name, value.width, width_});
    width_ += value.width;
    return parts_.back().begin;
  }
  void begin() { parts_.clear(), width_ = 0; }
  size_t width() const { return width_; }

 private:
  std::vector<Part> parts_;
  size_t width_ = 0;
};

}  // namespace

Layout::Layout(const StageSpec& s) : rows_(chunk_rows(s)), heads_(s.paged ? s.room.heads : 0) {
  size_t wide = std::max(s.hidden, s.room.wide), inner = s.room.inner, columns = std::max(s.hidden, s.room.columns);
  size_t scores = s.room.scores;
  Body body;
  std::optional<size_t> block;
  for (const auto& op : s.operations) {
    const bool norms = std::any_of(op->leaves.begin(), op->leaves.end(), [](const Value& v) { return v.normed(); });
    if ((norms && !op->continues) || op->block != block) body.begin();
    block = op->block;
    columns = std::max(columns, op->columns());
    if (s.paged && op->attention() != nullptr) heads_ = std::max(heads_, op->attention()->heads);
    auto& begins = begins_.emplace_back();
    for (const std::vector<Value>* side : {&op->reads, &op->leaves})
      for (const Value& value : *side) {
        if (value.area() == Area::hidden) expect(value.width == s.hidden, op->name + " has other hidden states");
        if (value.area() == Area::wide) wide = std::max(wide, value.width);
        if (value.area() == Area::scores) scores = std::max(scores, value.width);
        if (value.area() == Area::inner) begins.emplace_back(value.name, body.add(op->name, value));
      }
    inner = std::max(inner, body.width());
    space_ = std::max(space_, round_up(op->space(rows_), 16));
  }
  const auto region = [](size_t count, size_t width) { return round_up(product({count, width}), 16); };
  hidden_ = region(rows_, s.hidden), wide_ = region(rows_, wide), inner_ = region(rows_, inner);
  packed_ = region(rows_, input_size(columns));
  logits_ = region(outputs_of(s), s.vocab);
  scores_ = region(rows_, scores), running_ = region(rows_, 2 * heads_);
}

size_t Layout::bytes() const {
  return product({hidden_ + wide_ + inner_ + packed_ + logits_ + scores_ + running_ + space_, sizeof(float)});
}

size_t Layout::offset(size_t op, const Value& value) const {
  switch (value.area()) {
    case Area::hidden:
      return 0;
    case Area::wide:
      return hidden_;
    case Area::logits:
      return logits();
    case Area::scores:
      return logits() + logits_;
    case Area::inner:
      break;
  }
  for (const auto& [name, begin] : begins_[op])
    if (name == value.name) return inner_at() + rows_ * begin;
  refuse("there is no place for " + value.name);
}

void Layout::place(StageSpec& spec, float* base) const {
  for (size_t i = 0; i < spec.operations.size(); ++i)
    for (std::vector<Value>* side : {&spec.operations[i]->reads, &spec.operations[i]->leaves})
      for (Value& value : *side) value.at = base + offset(i, value);
}

Region Layout::region(size_t op, const Value& value) const {
  const size_t row = value.width * sizeof(float);
  return {offset(op, value) * sizeof(float), row, row};
}

}  // namespace helm
