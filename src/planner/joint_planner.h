// Plans below the floor of single layers: some consecutive layers are recomputed as one.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/candidates.h"
#include "pudica/planner.h"

namespace pudica::planner {

// Bounded lists over the suffix recursion R_i = max(W, s + R_{i+1}), where a joint segment skips to
// the layer behind it. Each list is cut into cells of time, and a cell holds the plan of least
// bytes: exact bytes and time of a real plan, which stands for what the cell turned away and knows
// how fast that was. Keeps its buffers. Not thread-safe.
class JointPlanner {
 public:
  // The least R_1 that a plan with joint segments reaches.
  std::int64_t floor_bytes(const Chain& chain, const Candidates& candidates);

  // The best plan within the budget; none fits: nullopt. Its lower bound is proven.
  std::optional<ChainPlan> solve(const Chain& chain, const Candidates& candidates,
                                 std::int64_t budget_bytes);

  // The points of the last solve() below `below_bytes`, peak ascending, time strictly descending.
  // Requires: it found a plan.
  [[nodiscard]] std::vector<FrontierPoint> points_below(std::int64_t below_bytes) const;

 private:
  // A plan of the layers from some layer on.
  struct Point {
    std::int64_t bytes = 0;  // R of it
    std::int64_t time_ns = 0;
    std::int64_t bound_ns = 0;  // no plan that this one stands for is faster
    std::uint32_t next = 0;     // point of the layer behind
    std::uint8_t source = 0;    // mode of the layer, where it stands alone
    std::uint8_t length = 1;    // layers
  };
  struct Cell {
    Point best;
    bool used = false;
  };
  // How a list grows out of one behind it.
  struct Step {
    ChainMode mode;
    std::uint8_t source = 0;
    std::uint8_t length = 1;
  };

  void load_steps(const Chain& chain, const Candidates& candidates, std::size_t layer);
  void compute_rooms(const Chain& chain, const Candidates& candidates, std::int64_t budget_bytes);
  // Calls take(point) for every plan of the layer that can be part of one that fits.
  template <typename Take>
  void for_each_plan(std::size_t layer, Take&& take) const;
  void build_list(std::size_t layer);
  [[nodiscard]] ChainPlan trace(const Chain& chain, const Point& begin) const;

  std::vector<std::vector<Point>> lists_;  // [i]: bytes ascending, time strictly descending
  std::vector<std::int64_t> rooms_;        // [i]: what R_i may be at most
  std::vector<Step> steps_;                // of the layer at hand
  std::vector<Cell> cells_;
};

}  // namespace pudica::planner
