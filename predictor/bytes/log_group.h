// The samples of a segment that share one log, and which shapes are theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/whole_vectors.h"
#include "predictor/bytes/exact_model.h"
#include "pudica/shape_key.h"

namespace pudica::predictor {

struct LogGroup {
  std::uint64_t signature = 0;
  std::size_t recent = 0;  // shapes among the last few
  std::size_t shapes = 0;
  std::uint64_t first_order = std::numeric_limits<std::uint64_t>::max();  // StoredSample::order
  std::uint64_t last_order = 0;
  std::uint64_t unit_patterns = 0;  // set of masks of the dimensions that are 1
  WholeVectors whole_vectors;
  double least_volume = std::numeric_limits<double>::infinity();
  double most_volume = 0;
  ExactModel model;

  // Claims the same shapes, whatever its model says.
  [[nodiscard]] bool is_alike(const LogGroup& other) const;
  void add(const ShapeKey& shape, std::uint64_t order, double volume, bool is_recent);
  // Some of its shapes had just these dimensions at 1.
  [[nodiscard]] bool has_pattern_of(const ShapeKey& shape) const;
};

// The group whose logs a shape is to be read from.
struct LogChoice {
  const LogGroup* group = nullptr;
  const LogGroup* rival = nullptr;  // the shape may be one of this: nothing tells. Null: none
};

// The first of `groups` whose shapes had just these dimensions at 1 (frameworks take other paths
// there); the first where none had. Null: there are none.
const LogGroup* first_of_pattern(const std::vector<LogGroup>& groups, const ShapeKey& shape);

// That, or another such group where something tells the shapes of the two apart: whole vectors
// (what pads is not there), or the volume (large sums are taken in other ways than small ones).
// A group that was there before the other, and not lately, tells how the segment has changed.
LogChoice choose_log(const std::vector<LogGroup>& groups, const ShapeKey& shape, double volume);

}  // namespace pudica::predictor
