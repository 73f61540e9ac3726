#include "plan_cache/region.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace pudica {
namespace {

constexpr std::int64_t kLongest = 1 << 22;

ShapeKey with_value(const ShapeKey& key, std::size_t dimension, std::int64_t value) {
  std::array<std::int64_t, ShapeKey::kMaxDimensions> values{};
  std::ranges::copy(key.values(), values.begin());
  values[dimension] = value;
  return ShapeKey(key.names(), std::span<const std::int64_t>(values.data(), key.size()));
}

// The largest value of one dimension that fits; its present value is known to.
std::int64_t longest(const ShapeKey& key, std::size_t dimension, const FitsAt& fits) {
  std::int64_t low = key[dimension];
  std::int64_t high = low;
  const auto good = [&](std::int64_t value) {
    return fits(with_value(key, dimension, value)).value_or(false);
  };
  do {
    low = high;
    high = 2 * low;
  } while (high < kLongest && good(high));
  if (high >= kLongest) return low;
  while (high - low > 1) {
    const std::int64_t middle = low + (high - low) / 2;
    (good(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace

std::vector<ShapeKey> region_of(const ShapeKey& key, const FitsAt& fits) {
  std::vector<ShapeKey> region;
  if (key.size() == 0 || !fits(key).value_or(false)) return region;
  for (std::size_t dimension = key.size() == 1 ? 0 : 1; dimension < key.size(); ++dimension) {
    const ShapeKey member = with_value(key, dimension, longest(key, dimension, fits));
    const bool known = std::ranges::any_of(
        region, [&member](const ShapeKey& other) { return other.covers(member); });
    if (known) continue;
    std::erase_if(region, [&member](const ShapeKey& other) { return member.covers(other); });
    region.push_back(member);
  }
  return region;
}

}  // namespace pudica
