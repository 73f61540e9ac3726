// The samples of a segment that share one log, and which shapes are theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "predictor/bytes/exact_model.h"
#include "predictor/bytes/shape_set.h"
#include "pudica/shape_key.h"

namespace pudica::predictor {

struct LogGroup {
  std::uint64_t signature = 0;
  std::size_t recent = 0;  // shapes among the last few
  std::size_t shapes = 0;
  std::uint64_t first_order = std::numeric_limits<std::uint64_t>::max();  // StoredSample::order
  std::uint64_t last_order = 0;
  std::uint64_t order_sum = 0;
  std::uint64_t unit_patterns = 0;  // set of masks of the dimensions that are 1
  ShapeSet shapes_seen;
  ExactModel model;

  // A model of the one is that of the other.
  [[nodiscard]] bool has_same_samples(const LogGroup& other) const;
  void add(const ShapeKey& shape, std::uint64_t order, double volume, bool is_recent);
  // Some of its shapes had just these dimensions at 1.
  [[nodiscard]] bool has_pattern_of(const ShapeKey& shape) const;
};

// The group whose logs a shape is to be read from.
struct LogChoice {
  const LogGroup* group = nullptr;
  std::vector<const LogGroup*> rivals;  // the shape may be one of these as well
  bool is_told_apart = true;            // from each other group something tells it
};

// The first of `groups` whose shapes had just these dimensions at 1 (frameworks take other paths
// there); the first where none had. Null: there are none.
const LogGroup* first_of_pattern(const std::vector<LogGroup>& groups, const ShapeKey& shape);

// That, or another such group where something tells the shapes of the two apart. A group that was
// there before the other, and not lately, tells how the segment has changed, unless all its shapes
// are longer or shorter.
LogChoice choose_log(const std::vector<LogGroup>& groups, const ShapeKey& shape, double volume);

}  // namespace pudica::predictor
