// The judge of every planner: all choices of a small chain, one by one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "pudica/planner.h"

namespace pudica::testing {

// Knows the exact frontier of a chain by enumerating the product of its layers' modes, and of its
// joint segments. Computes peaks forwards (S + W), not by the planner's backward recursion. For
// chains without overflow.
class ExhaustivePlanner {
 public:
  explicit ExhaustivePlanner(const Chain& chain) : chain_(chain) {
    visit(0, 0, 0, 0, /*is_first=*/true);
    std::ranges::sort(points_, [](const FrontierPoint& left, const FrontierPoint& right) {
      return left.peak_bytes != right.peak_bytes ? left.peak_bytes < right.peak_bytes
                                                 : left.time_ns < right.time_ns;
    });
    std::vector<FrontierPoint> best;
    for (const FrontierPoint& point : points_) {
      if (best.empty() || point.time_ns < best.back().time_ns) best.push_back(point);
    }
    points_ = std::move(best);
  }

  // Peak ascending, time strictly descending.
  [[nodiscard]] const std::vector<FrontierPoint>& frontier() const { return points_; }
  [[nodiscard]] std::int64_t floor_bytes() const { return points_.front().peak_bytes; }
  [[nodiscard]] std::int64_t enough_bytes() const { return points_.back().peak_bytes; }

  // The least time within so many bytes; none: nothing fits.
  [[nodiscard]] std::optional<std::int64_t> best_ns(std::int64_t available_bytes) const {
    std::optional<std::int64_t> best;
    for (const FrontierPoint& point : points_) {
      if (point.peak_bytes <= available_bytes) best = point.time_ns;
    }
    return best;
  }

 private:
  void visit(std::size_t layer, std::int64_t held, std::int64_t peak, std::int64_t time_ns,
             bool is_first) {
    if (layer == chain_.layers.size()) {
      const std::int64_t tail = held + chain_.tail_bytes;
      points_.push_back({is_first ? tail : std::max(peak, tail), time_ns});
      return;
    }
    const auto go_on = [&](const ChainMode& mode, std::size_t length) {
      const std::int64_t here = held + mode.peak_bytes;
      visit(layer + length, held + mode.kept_bytes, is_first ? here : std::max(peak, here),
            time_ns + mode.time_ns, false);
    };
    for (const ChainMode& mode : chain_.layers[layer]) go_on(mode, 1);
    if (layer >= chain_.joints.size()) return;
    for (const ChainJoint& joint : chain_.joints[layer]) go_on(joint.as_one, joint.length);
  }

  const Chain& chain_;
  std::vector<FrontierPoint> points_;
};

}  // namespace pudica::testing
