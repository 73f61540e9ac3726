// The exact frontier of a chain too long to enumerate, by lists without a bound.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "pudica/planner.h"

namespace pudica::testing {

// Forward lists of (held, peak, time), where the planner's recursion runs backwards: of two
// beginnings that hold, peak and take no less, one is enough. Joint segments are left out.
class ParetoPlanner {
 public:
  explicit ParetoPlanner(const Chain& chain) {
    std::vector<Beginning> list{{0, chain.layers.empty() ? chain.tail_bytes : INT64_MIN, 0}};
    for (const auto& layer : chain.layers) {
      std::vector<Beginning> next;
      for (const Beginning& begin : list) {
        for (const ChainMode& mode : layer) {
          next.push_back({begin.held + mode.kept_bytes,
                          std::max(begin.peak, begin.held + mode.peak_bytes),
                          begin.time_ns + mode.time_ns});
        }
      }
      list = best_of(std::move(next));
    }
    for (const Beginning& whole : list) {
      ends_.push_back({std::max(whole.peak, whole.held + chain.tail_bytes), whole.time_ns});
    }
  }

  // The least time within so many bytes; none: nothing fits.
  [[nodiscard]] std::optional<std::int64_t> best_ns(std::int64_t available_bytes) const {
    std::optional<std::int64_t> best;
    for (const FrontierPoint& end : ends_) {
      if (end.peak_bytes > available_bytes || (best && *best <= end.time_ns)) continue;
      best = end.time_ns;
    }
    return best;
  }
  [[nodiscard]] const std::vector<FrontierPoint>& ends() const { return ends_; }

 private:
  struct Beginning {
    std::int64_t held, peak, time_ns;
    auto operator<=>(const Beginning&) const = default;
  };

  // In ascending (held, peak, time) order a beginning can only be beaten by one before it.
  static std::vector<Beginning> best_of(std::vector<Beginning> list) {
    std::ranges::sort(list);
    std::vector<Beginning> kept;
    std::vector<FrontierPoint> stairs;  // of those kept: peak ascending, time strictly descending
    for (const Beginning& begin : list) {
      const auto after =
          std::ranges::upper_bound(stairs, begin.peak, {}, &FrontierPoint::peak_bytes);
      if (after != stairs.begin() && (after - 1)->time_ns <= begin.time_ns) continue;
      auto end = after;
      while (end != stairs.end() && end->time_ns >= begin.time_ns) ++end;
      stairs.insert(stairs.erase(after, end), {begin.peak, begin.time_ns});
      kept.push_back(begin);
    }
    return kept;
  }

  std::vector<FrontierPoint> ends_;
};

}  // namespace pudica::testing
