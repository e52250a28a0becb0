// Operation: one step of a stage, prepared: its weights, its widths, and where in the workspace its values are.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/linear/linear.h"

namespace helm {

class StagePass;
struct StageSpec;

// The part of the workspace in which values lie: the residual stream; norms, or what attention gives; what the rest of
// a body leaves, one after the other from its norm on; logits; scores of divided attention.
enum class Area { hidden, wide, inner, logits, scores };

// A named result, rows of `width` 4-byte numbers. `at` is known once a stage has been laid out.
struct Value {
  std::string name;
  size_t width = 0;
  float* at = nullptr;

  Area area() const;
  bool normed() const { return name == "normed"; }
};

// What layers read of every token of a pass beside hidden states, `width` numbers a row: a buffer of the stage's
// device.
struct LayerInputs {
  float* data = nullptr;
  size_t width = 0;

  float* of(size_t token) const { return data + token * width; }
};

// A stage runs operations in order, on all threads of its pool; each type is a file here, a function of
// bindings/stage_operations.cpp and a specification of executor/devices/operations.py.
class Operation {
 public:
  virtual ~Operation() = default;

  std::string name;             // `q`; with its block `3.q`
  std::optional<size_t> block;  // among the stage's; or outside blocks
  std::vector<Value> reads, leaves;
  bool continues = false;  // whether a norm's values follow those of the body before it, which are still read
  bool shares = true;      // whether other threads read what it leaves before anything else makes them wait

  // Throws std::invalid_argument for widths and weights that do not fit.
  virtual void check(const StageSpec& spec) const = 0;
  // Whether the stage has what it needs to run it.
  virtual bool present() const { return true; }
  // This thread's share, with the stamp; what others need of it is visible to them afterwards.
  virtual void run(StagePass& pass) const = 0;

  // Floats of scratch that a thread needs; columns of the widest input of a linear layer.
  virtual size_t scratch(const StageSpec&) const { return 0; }
  virtual size_t columns() const { return 0; }
  // Floats that it needs while it works on so many rows.
  virtual size_t space(size_t) const { return 0; }

  // Of how many sequences it keeps states at most.
  virtual size_t kept() const { return SIZE_MAX; }
  virtual bool reads_ids() const { return false; }
  virtual bool chooses() const { return false; }
  // Of each sequence's last token, or of rows whose logits are wanted, only.
  virtual bool of_outputs() const { return false; }
  // The attention of an operation over caches, or null; whether it reads one run of positions.
  virtual const Attention* attention() const { return nullptr; }
  virtual bool contiguous() const { return false; }
  // Of hidden states of this width: columns that are read, and those that are left.
  virtual Range hidden_read(size_t) const { return {0, 0}; }
  virtual Range hidden_left(size_t hidden) const { return {0, hidden}; }

  std::string title() const { return block ? std::to_string(*block) + "." + name : name; }
};

// Throws std::invalid_argument, as all checks of operations do.
[[noreturn]] void refuse(const std::string& what);
void expect(bool condition, const std::string& what);
// A whole matrix, or a part of one of `rows` rows, which begins with a whole panel.
void check_matrix(const std::string& name, const Matrix& m, size_t rows, size_t columns);
void check_part(const std::string& name, const std::optional<Matrix>& m, size_t rows, size_t columns);

}  // namespace helm
