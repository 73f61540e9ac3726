#include "torch/menu_hull.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace pudica::hooks {

// From (0, 0): ever more bytes at a rising price.
std::vector<MenuPoint> lower_hull(std::vector<MenuPoint> points) {
  std::ranges::stable_sort(points, [](const MenuPoint& a, const MenuPoint& b) {
    return a.freed != b.freed ? a.freed < b.freed : a.work < b.work;
  });
  const auto product = [](std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
  };
  const auto area = [&product](const MenuPoint& a, const MenuPoint& b, const MenuPoint& c) {
    return product(b.work - a.work, c.freed - a.freed) -
           product(c.work - a.work, b.freed - a.freed);
  };
  std::vector<MenuPoint> hull{MenuPoint{}};
  for (MenuPoint& point : points) {
    if (point.freed == hull.back().freed) continue;  // dearer for the same
    while (hull.size() > 1 && area(hull[hull.size() - 2], hull.back(), point) >= 0) {
      hull.pop_back();
    }
    hull.push_back(std::move(point));
  }
  hull.erase(hull.begin());
  return hull;
}

// Takes away inner points, each time the one that costs the hull the least area.
void thin(std::vector<MenuPoint>& hull, std::size_t most) {
  while (hull.size() > most && hull.size() > 2) {
    double least = std::numeric_limits<double>::infinity();
    std::size_t drop = 1;
    for (std::size_t i = 1; i + 1 < hull.size(); ++i) {
      const MenuPoint& a = hull[i - 1];
      const MenuPoint& c = hull[i + 1];
      const auto span = static_cast<double>(c.freed - a.freed);
      const double share = static_cast<double>(hull[i].freed - a.freed) / span;
      const double chord =
          static_cast<double>(a.work) + share * static_cast<double>(c.work - a.work);
      const double gain = (chord - static_cast<double>(hull[i].work)) * span;
      if (gain < least) {
        least = gain;
        drop = i;
      }
    }
    hull.erase(hull.begin() + static_cast<std::ptrdiff_t>(drop));
  }
}

}  // namespace pudica::hooks
