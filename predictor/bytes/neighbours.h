// Shapes that were seen about one that was not.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "predictor/bytes/monomials.h"
#include "predictor/bytes/stored_sample.h"

namespace pudica::predictor {

// The nearest by volume of the latest samples that are nowhere larger than a shape, and of those
// that are nowhere smaller; and the most that these two take or the next one on either side.
// Samples of the shape itself are left out.
struct Neighbours {
  const StoredSample* below = nullptr;
  const StoredSample* above = nullptr;
  std::int64_t most_net_bytes = 0;
  std::int64_t most_peak_bytes = 0;
};

// nullopt: there is none on one side. Requires: shape and samples of the basis' dimensions.
std::optional<Neighbours> neighbours_of(const ShapeKey& shape,
                                        std::span<const StoredSample> samples,
                                        const MonomialBasis& basis);

// By how much any of the latest samples took more than the nearest two do. Nothing where bytes rise
// with the shape, in steps too, or are the largest of sums that each rise or fall.
struct BeyondNeighbours {
  std::int64_t net_bytes = 0;
  std::int64_t peak_bytes = 0;
};

// nullopt: too few samples have neighbours to say so.
std::optional<BeyondNeighbours> beyond_neighbours(std::span<const StoredSample> samples,
                                                  const MonomialBasis& basis);

}  // namespace pudica::predictor
