#include "train/spread_shapes.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace pudica::train {
namespace {

double volume_of(const ShapeKey& shape) {
  double volume = 1;
  for (const std::int64_t value : shape.values()) volume *= static_cast<double>(value);
  return volume;
}

}  // namespace

std::map<ShapeKey, std::int64_t> spread_shapes(const std::map<ShapeKey, std::int64_t>& shapes,
                                               std::size_t most) {
  if (shapes.size() <= most) return shapes;
  std::vector<std::pair<ShapeKey, std::int64_t>> sorted(shapes.begin(), shapes.end());
  std::ranges::stable_sort(
      sorted, [](const auto& a, const auto& b) { return volume_of(a.first) < volume_of(b.first); });
  std::map<ShapeKey, std::int64_t> out;
  for (std::size_t i = 0; i < most; ++i) {
    out.insert(sorted[i * (sorted.size() - 1) / (most - 1)]);
  }
  return out;
}

}  // namespace pudica::train
