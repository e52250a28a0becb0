// The rows of a pass, sorted by expert.
#pragma once
#include <cstdint>

#include "kernels/experts/experts.h"

namespace helm {

// Sorted rows [begin, end) are those of `expert`.
struct Segment {
  uint32_t expert, begin, end;

  size_t rows() const { return end - begin; }
};

// How many segments there are, those before the first late one, and rows of the largest.
struct Counts {
  uint32_t segments, early, most_rows;
};

// Segments [first, last), whose activations are kept at once: sorted rows [begin, end).
struct Wave {
  size_t first, last, begin, end;
};

// Where a pass keeps what it computes: parts of its workspace.
struct ExpertsWorkspace {
  ExpertsWorkspace(const ExpertLayer& layer, size_t chosen, size_t tokens, float* workspace);

  size_t wave_rows;
  Counts* counts;
  Segment* segments;   // [experts]
  uint32_t* first;     // [experts + 1]
  int32_t* order;      // [tokens * chosen]: of sorted rows, token * chosen + which of its experts
  int32_t* positions;  // [tokens * chosen]: the sorted row, or -1
  float* rows;         // [wave_rows][max(up.columns, down.rows)]: inputs, later outcomes; of a pass of one wave all
                       // rows have places of their own
  float* packed;       // [wave_rows] inputs of a linear layer
  float *gate, *up;    // [wave_rows][up.rows]
  size_t size;         // floats of all
};

// A counting sort of the choices by expert, late ones last, unless there are more rows than a wave has; within one by
// token.
void sort_rows(const ExpertLayer& layer, const ExpertChoice& choice, size_t tokens, const LateExperts& late,
               const ExpertsWorkspace& w);

// The wave that begins with segment `first`, which exists.
Wave wave_from(const ExpertsWorkspace& w, size_t first);

}  // namespace helm
