// Shared by the binding files: one register_*() each, and the checks of what Python passes in.
#pragma once
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "runtime/arena.h"
#include "runtime/event.h"
#include "kernels/linear/linear.h"
#include "runtime/pool.h"
#include "runtime/queue.h"
#include "stage/stage.h"

namespace helm {

namespace py = pybind11;

void register_isa(py::module_& module);
void register_memory(py::module_& module);
void register_linear(py::module_& module);
void register_probe(py::module_& module);
void register_experts(py::module_& module);
void register_mixers(py::module_& module);
void register_stage(py::module_& module);
void register_copy_engine(py::module_& module);
void register_queue(py::module_& module);
void register_submissions(py::module_& module);
void register_compress(py::module_& module);
void register_disk(py::module_& module);
void register_serving(py::module_& module);
void register_serving_weights(py::module_& module);

constexpr long long kLargest = 1LL << 40;  // of any count or size from Python

// `value` as a size. Throws ValueError when it is below `least` or above kLargest.
size_t count_of(const char* name, long long value, long long least = 1);

// A plain format. Throws ValueError for any other name.
Format format_of(const std::string& name);

// The same, of formats that caches can have.
Format kv_format_of(const std::string& name);
// Any format of weights. Throws ValueError for an unknown name.
Format stored_format_of(const std::string& name);

// Throws ValueError for an unknown name.
Activations activations_of(const std::string& name);
Activation activation_of(const std::string& name);
Activations attention_activations_of(const std::string& name);  // what attention of prompts multiplies

// Throws ValueError when rows of `columns` values cannot be stored in `format`.
void expect_columns(Format format, size_t columns);

// A contiguous Python buffer of at least `count` elements of 4 or 8 bytes, aligned to them. While it lives, the
// memory stays where it is. Throws ValueError naming `what`.
class View {
 public:
  View(const char* what, const py::buffer& buffer, size_t count, size_t element, bool writable);
  void* data() const { return info_.ptr; }

 private:
  py::buffer_info info_;
};

// Throws ValueError when the buffer is smaller than `size`.
void expect_size(const char* what, const Buffer& buffer, size_t size);

// Throws ValueError when `size` bytes from `offset` do not lie within the buffer.
void expect_range(const char* what, const Buffer& buffer, size_t offset, size_t size);

// f64 (2,) that something fills while it keeps `view` alive, wherever that is dropped; both null for None.
struct Times {
  explicit Times(const py::object& times);
  std::shared_ptr<View> view;
  double* data = nullptr;
};

// Events of a Python sequence. Throws ValueError for None among them.
Events events_of(const std::vector<std::shared_ptr<Event>>& events);

// Of caches: keys, their offset, values, theirs, from sequence to sequence, from head to head; first position, count.
using SpanArgs =
    std::tuple<const Buffer*, long long, const Buffer*, long long, long long, long long, long long, long long>;

// What the call of the same purpose does once it is run; arguments have been checked. The caller keeps alive what
// is passed by reference. A prepared pass checks its tokens, past, start and stop when it is called; neither that nor
// what it returns needs the GIL.
std::function<void()> decompression(Pool& pool, const Buffer& source, const Buffer& target, const std::string& format,
                                    long long rows, long long columns);
using PreparedPass = std::function<std::function<void()>(long long tokens, long long past, long long start,
                                                         std::optional<long long> stop)>;
PreparedPass stage_pass(const py::object& stage, const Buffer* source, const Buffer* target, const py::buffer& stamps,
                        long long first, std::optional<long long> last);
std::function<void()> stage_attention(const py::object& stage, long long block, const std::vector<SpanArgs>& spans,
                                      bool first, bool last, long long tokens, long long past);
std::function<void()> turning(Pool& pool, const Buffer& source, long long source_offset,
                              const std::vector<long long>& source_strides, const Buffer& target,
                              long long target_offset, const std::vector<long long>& target_strides,
                              const std::vector<long long>& counts, const std::string& stored,
                              const std::string& format, bool transposed);

// What is behind a Stage, its workspace, a Queue, a CopyEngine of Python: they are kept alive. Drop them holding the
// GIL.
std::shared_ptr<Stage> stage_of(const py::object& stage);
Buffer workspace_of(const py::object& stage);
std::shared_ptr<Queue> queue_of(const py::object& queue);
class CopyEngine;
std::shared_ptr<CopyEngine> engine_of(const py::object& engine);

// A copy of pieces, checked. Throws ValueError for what does not fit.
using Pair = std::pair<long long, long long>;
struct Copy;
Copy strided_copy(const Buffer& target, long long target_offset, Pair target_strides, const Buffer& source,
                  long long source_offset, Pair source_strides, Pair counts, long long size);

class DiskFile;
std::function<void()> disk_read(const std::shared_ptr<DiskFile>& file, long long offset, const Buffer& target,
                                long long target_offset, long long size);

// A matrix whose packed weights are in `weights`. Throws ValueError when they are too small.
Matrix matrix_of(const char* what, const Buffer& weights, const std::string& format, long long rows, long long columns);

}  // namespace helm
