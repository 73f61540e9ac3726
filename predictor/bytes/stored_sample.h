// What is kept of a segment at one shape.
#pragma once

#include <cstdint>
#include <vector>

#include "pudica/shape_key.h"

namespace pudica::predictor {

// The last sample at one shape.
struct StoredSample {
  ShapeKey shape;
  bool has_deltas = false;           // they add up to net and peak; empty where nothing happens
  std::vector<std::int64_t> deltas;  // none zero
  std::int64_t net_bytes = 0;
  std::int64_t peak_bytes = 0;
  std::uint64_t order = 0;      // rises with every change of what is stored
  std::uint64_t signature = 0;  // of the number and the signs of the deltas

  [[nodiscard]] bool has_same_bytes(const StoredSample& other) const;
};

}  // namespace pudica::predictor
