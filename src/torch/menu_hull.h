// Which sets of dropped tensors are worth a step of a menu: those on the lower hull of work over
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace pudica::hooks {

// Bytes and work in units that all candidates and operators share: the same numbers at every shape
// where all tensors grow alike.
struct MenuPoint {
  std::int64_t freed = 0;
  std::int64_t work = 0;
  std::vector<std::size_t> chosen;  // candidates by index
};

// From (0, 0): ever more bytes at a rising price.
std::vector<MenuPoint> lower_hull(std::vector<MenuPoint> points);
// Takes away inner points, each time the one that costs the hull the least area, down to `most`
// (at least 2).
void thin(std::vector<MenuPoint>& hull, std::size_t most);

}  // namespace pudica::hooks
