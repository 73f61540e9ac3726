#include "predictor/bytes/neighbours.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

namespace pudica::predictor {
namespace {

constexpr std::size_t kLatest = 64;  // what is judged: a program may have been another before
constexpr std::size_t kEnough = 6;   // fewer say little of how far one may be beyond

bool is_nowhere_larger(const ShapeKey& shape, const ShapeKey& other) {
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] > other[d]) return false;
  }
  return true;
}

// The two nearest samples on one side of a shape.
struct Side {
  std::array<const StoredSample*, 2> nearest{};
  std::array<double, 2> away{};

  void add(const StoredSample& sample, double sample_away) {
    for (std::size_t place = 0; place < nearest.size(); ++place) {
      if (nearest[place] != nullptr && away[place] <= sample_away) continue;
      for (std::size_t later = nearest.size() - 1; later > place; --later) {
        nearest[later] = nearest[later - 1];
        away[later] = away[later - 1];
      }
      nearest[place] = &sample;
      away[place] = sample_away;
      return;
    }
  }
};

}  // namespace

std::optional<Neighbours> neighbours_of(const ShapeKey& shape,
                                        std::span<const StoredSample> samples,
                                        const MonomialBasis& basis) {
  Side below;
  Side above;
  const double volume = basis.volume(shape);
  for (const StoredSample& sample : samples.last(std::min(samples.size(), kLatest))) {
    if (sample.shape == shape) continue;
    const bool is_smaller = is_nowhere_larger(sample.shape, shape);
    if (!is_smaller && !is_nowhere_larger(shape, sample.shape)) continue;
    (is_smaller ? below : above).add(sample, std::abs(basis.volume(sample.shape) - volume));
  }
  Neighbours found{below.nearest[0], above.nearest[0]};
  if (found.below == nullptr || found.above == nullptr) return std::nullopt;
  found.most_net_bytes = found.below->net_bytes;
  found.most_peak_bytes = found.below->peak_bytes;
  for (const StoredSample* one : {below.nearest[1], above.nearest[0], above.nearest[1]}) {
    if (one == nullptr) continue;
    found.most_net_bytes = std::max(found.most_net_bytes, one->net_bytes);
    found.most_peak_bytes = std::max(found.most_peak_bytes, one->peak_bytes);
  }
  return found;
}

std::optional<BeyondNeighbours> beyond_neighbours(std::span<const StoredSample> samples,
                                                  const MonomialBasis& basis) {
  const auto latest = samples.last(std::min(samples.size(), kLatest));
  BeyondNeighbours beyond;
  std::size_t judged = 0;
  for (const StoredSample& sample : latest) {
    const auto found = neighbours_of(sample.shape, latest, basis);
    if (!found) continue;
    ++judged;
    const std::int64_t net = std::max(found->below->net_bytes, found->above->net_bytes);
    const std::int64_t peak = std::max(found->below->peak_bytes, found->above->peak_bytes);
    beyond.net_bytes = std::max(beyond.net_bytes, sample.net_bytes - net);
    beyond.peak_bytes = std::max(beyond.peak_bytes, sample.peak_bytes - peak);
  }
  if (judged < kEnough) return std::nullopt;
  return beyond;
}

}  // namespace pudica::predictor
