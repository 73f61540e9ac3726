// The LP certificate: a lower bound on the time of every plan that fits, from multipliers.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/candidates.h"

namespace pudica::planner {

// Fitting B means S_{i-1} + W_i <= B for each layer and S_L + tail <= B. With multipliers
// mu_i >= 0 on these and lam_i = mu_i + mu_{i+1} + ..., every plan that fits takes at least
//   lam_{L+1} tail + sum_i min_m [ t + lam_{i+1} s + (lam_i - lam_{i+1}) W_i ] - lam_1 B
// for any lam_1 >= lam_2 >= ... >= 0 (Lagrangian bound of the integer program). Good lam come from
// the program over the convex hulls of (s, t), where time bought per byte is a slope: see
// multipliers(). Keeps its buffers. Not thread-safe.
class LpCertificate {
 public:
  // The bound, in time over the fastest choice, never above the optimum. Keeps the multipliers.
  // Requires: budget_bytes >= candidates.floors()[0].
  std::int64_t bound_ns(const Candidates& candidates, std::int64_t budget_bytes);

  // Makes least_ns() ready with the multipliers of the last bound_ns. Requires: the same arguments.
  void prepare_rest(const Candidates& candidates, std::int64_t budget_bytes);
  // No choice of the layers from `layer` on within `room_bytes` takes less.
  [[nodiscard]] std::int64_t least_ns(std::size_t layer, std::int64_t room_bytes) const {
    const double bound = rest_[layer] - slope_[layer] * static_cast<double>(room_bytes);
    return bound > 0 ? static_cast<std::int64_t>(bound) : 0;
  }

  // The choice that follows the multipliers of the last bound_ns as far as it fits.
  void round(const Candidates& candidates, std::int64_t budget_bytes, Choice* choice) const;

 private:
  // One edge of a layer's hull: the time that keeping so many more bytes saves.
  struct Edge {
    double ns_per_byte = 0;
    double bytes = 0;
    std::uint32_t rank = 0;  // 0: the steepest of all layers
  };
  struct Order {
    double ns_per_byte;
    std::uint32_t edge;
  };
  // The largest sizes of a layer's terms: what rounding errors are relative to.
  struct Sizes {
    double kept = 0;
    double peak = 0;
    double time = 0;
  };
  // Edges not yet bought, by rank.
  class Pool;

  void prepare(const Candidates& candidates);
  void add_hull(const Candidates& candidates, std::size_t layer);
  // `least_room[i]`: bytes below which layer i cannot run, so that R_i is no less.
  void multipliers(const Candidates& candidates, double budget);
  // The bound of the multipliers in slope_, rounding errors taken off.
  [[nodiscard]] double certify(const Candidates& candidates, double budget) const;
  // A mode's time and what the multipliers ask for its bytes.
  [[nodiscard]] double priced_ns(const Candidate& mode, std::size_t layer) const;
  [[nodiscard]] double least_priced_ns(const Candidates& candidates, std::size_t layer) const;
  [[nodiscard]] std::size_t cheapest(const Candidates& candidates, std::size_t layer) const;

  std::vector<Edge> edges_;
  std::vector<std::size_t> first_edge_;  // of each layer, and the end
  std::vector<Order> order_;             // edges by rank
  std::vector<Sizes> sizes_;
  std::vector<double> least_kept_;
  std::vector<double> room_;   // w_i: R_i is taken to be no less
  std::vector<double> saved_;  // theta_i
  std::vector<double> slope_;  // lam_i of layer i; the last is of the tail
  std::vector<double> best_slope_;
  std::vector<double> rest_;  // [i]: the bound of the layers from i on, were there no room at all
  std::vector<std::uint64_t> unbought_;  // bits by rank
  std::vector<double> left_bytes_;       // by rank
  std::vector<std::size_t> hull_;
};

}  // namespace pudica::planner
