#include "timing/sequence.h"

#include <algorithm>
#include <stdexcept>

namespace helm {
namespace {

// Reads `waits` number by number.
class Reader {
 public:
  Reader(const int64_t* numbers, size_t count) : numbers_(numbers), count_(count) {}

  bool empty() const { return place_ == count_; }
  int64_t peek() const { return numbers_[place_]; }

  // The next number, from `least` up to below `end`.
  size_t next(int64_t end) { return static_cast<size_t>(next(0, end)); }
  int64_t next(int64_t least, int64_t end) {
    if (empty() || numbers_[place_] < least || numbers_[place_] >= end)
      throw std::invalid_argument("no such task or lane");
    return numbers_[place_++];
  }

 private:
  const int64_t* numbers_;
  size_t count_, place_ = 0;
};

}  // namespace

double sequence_seconds(const int32_t* kinds, size_t count, const std::vector<double>& seconds, const int64_t* waits,
                        size_t waits_size, const std::vector<double>& joins, const std::vector<double>& handovers) {
  if (handovers.size() != joins.size() * joins.size()) throw std::invalid_argument("lists of different lengths");
  const auto lanes = static_cast<int64_t>(joins.size());
  Reader reader(waits, waits_size);
  std::vector<double> ends;
  ends.reserve(count);
  double now = 0.0;
  for (size_t task = 0; task < count; ++task) {
    const auto here = static_cast<int64_t>(task);
    if (!reader.empty() && reader.peek() == here) {
      reader.next(here, here + 1);
      const size_t lane = reader.next(lanes);
      const int64_t before = reader.next(-1, here);
      if (before >= 0) now = std::max(now, ends[static_cast<size_t>(before)] + joins[lane]);
      for (size_t others = reader.next(here + 1); others > 0; --others) {
        const double ended = ends[reader.next(here)];
        now = std::max(now, ended + handovers[reader.next(lanes) * joins.size() + lane]);
      }
    }
    if (kinds[task] < 0 || static_cast<size_t>(kinds[task]) >= seconds.size())
      throw std::invalid_argument("no such work");
    now += seconds[static_cast<size_t>(kinds[task])];
    ends.push_back(now);
  }
  if (!reader.empty()) throw std::invalid_argument("no such task or lane");
  return now;
}

}  // namespace helm
