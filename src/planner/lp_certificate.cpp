#include "planner/lp_certificate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "planner/saturating.h"

namespace pudica::planner {

// Edges that the layers so far offer, taken steepest first.
class LpCertificate::Pool {
 public:
  Pool(std::vector<std::uint64_t>* unbought, std::vector<double>* left, std::size_t ranks)
      : bits_(*unbought), left_(*left) {
    bits_.assign(ranks / 64 + 1, 0);
    left_.resize(ranks);
    lowest_ = bits_.size();
  }

  void offer(std::size_t rank, double bytes) {
    left_[rank] = bytes;
    bits_[rank / 64] |= std::uint64_t{1} << (rank % 64);
    lowest_ = std::min(lowest_, rank / 64);
  }

  // Takes `bytes` off the steepest edges. The rank of the last one touched; none: the pool ran out.
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  std::size_t take(double bytes) {
    while (true) {
      while (lowest_ < bits_.size() && bits_[lowest_] == 0) ++lowest_;
      if (lowest_ == bits_.size()) return kNone;
      const std::size_t rank =
          lowest_ * 64 + static_cast<std::size_t>(std::countr_zero(bits_[lowest_]));
      if (left_[rank] > bytes) {
        left_[rank] -= bytes;
        return rank;
      }
      bytes -= left_[rank];
      bits_[lowest_] &= bits_[lowest_] - 1;
      if (bytes <= 0) return rank;
    }
  }

 private:
  std::vector<std::uint64_t>& bits_;
  std::vector<double>& left_;
  std::size_t lowest_ = 0;  // no bit is set in words below
};

// The lower-left hull of (kept, time), from the fastest mode to the one that keeps least.
void LpCertificate::add_hull(const Candidates& candidates, std::size_t layer) {
  const auto modes = candidates.of(layer);
  hull_.clear();
  Sizes& sizes = sizes_.emplace_back();
  for (std::size_t m = 0; m < modes.size(); ++m) {
    const auto kept = static_cast<double>(modes[m].kept_bytes);
    const auto time = static_cast<double>(modes[m].time_ns);
    sizes.kept = std::max(sizes.kept, std::abs(kept));
    sizes.peak = std::max(sizes.peak, std::abs(static_cast<double>(modes[m].peak_bytes)));
    sizes.time = std::max(sizes.time, time);
    if (!hull_.empty() && modes[m].kept_bytes >= modes[hull_.back()].kept_bytes) continue;
    const auto slope_from = [&](std::size_t h) {
      return (time - static_cast<double>(modes[h].time_ns)) /
             (static_cast<double>(modes[h].kept_bytes) - kept);
    };
    while (hull_.size() >= 2) {
      // The middle one is above the line when the way past it is no steeper.
      const std::size_t first = hull_[hull_.size() - 2];
      if (slope_from(first) > slope_from(hull_.back())) {
        hull_.pop_back();
      } else {
        break;
      }
    }
    hull_.push_back(m);
  }
  least_kept_.push_back(static_cast<double>(modes[hull_.back()].kept_bytes));
  for (std::size_t h = 0; h + 1 < hull_.size(); ++h) {
    const Candidate& from = modes[hull_[h]];
    const Candidate& to = modes[hull_[h + 1]];
    const double bytes = static_cast<double>(from.kept_bytes) - static_cast<double>(to.kept_bytes);
    if (bytes <= 0) continue;  // too close to tell apart in double
    const double slope = static_cast<double>(to.time_ns - from.time_ns) / bytes;
    order_.push_back({slope, static_cast<std::uint32_t>(edges_.size())});
    edges_.push_back({slope, bytes, 0});
  }
  first_edge_.push_back(edges_.size());
}

void LpCertificate::prepare(const Candidates& candidates) {
  edges_.clear();
  order_.clear();
  sizes_.clear();
  least_kept_.clear();
  first_edge_.assign(1, 0);
  for (std::size_t i = 0; i < candidates.layers(); ++i) add_hull(candidates, i);
  std::ranges::sort(order_, std::ranges::greater(), &Order::ns_per_byte);
  for (std::size_t rank = 0; rank < order_.size(); ++rank) {
    edges_[order_[rank].edge].rank = static_cast<std::uint32_t>(rank);
  }
}

// Let T_i(r) be the LP's least time of layers i.. within r bytes: at the layers' least bytes it is
// greatest, and falls along the edges, steepest first. R_i >= room_[i] makes bytes below room_[i]
// free, which takes the steepest edges off; theta_i is the slope where that ends. lam_1 is T_1's
// slope at the budget and lam_{i+1} = min(lam_i, theta_i).
void LpCertificate::multipliers(const Candidates& candidates, double budget) {
  const std::size_t layers = candidates.layers();
  constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  Pool pool(&unbought_, &left_bytes_, order_.size());
  saved_.assign(layers, kUnlimited);
  auto held = static_cast<double>(candidates.tail_bytes());
  for (std::size_t i = layers; i-- > 0;) {
    held += least_kept_[i];
    for (std::size_t e = first_edge_[i]; e < first_edge_[i + 1]; ++e) {
      pool.offer(edges_[e].rank, edges_[e].bytes);
    }
    if (held >= room_[i]) continue;
    const std::size_t rank = pool.take(room_[i] - held);
    saved_[i] = rank == Pool::kNone ? 0 : order_[rank].ns_per_byte;
    held = room_[i];
  }
  double slope = order_.empty() ? 0 : order_.front().ns_per_byte;
  if (held <= budget) {
    const std::size_t rank = pool.take(budget - held);
    slope = rank == Pool::kNone ? 0 : order_[rank].ns_per_byte;
  }
  slope_.resize(layers + 1);
  slope_[0] = slope;
  for (std::size_t i = 0; i < layers; ++i) slope_[i + 1] = std::min(slope_[i], saved_[i]);
}

double LpCertificate::priced_ns(const Candidate& mode, std::size_t layer) const {
  return static_cast<double>(mode.time_ns) +
         slope_[layer + 1] * static_cast<double>(mode.kept_bytes) +
         (slope_[layer] - slope_[layer + 1]) * static_cast<double>(mode.peak_bytes);
}

double LpCertificate::least_priced_ns(const Candidates& candidates, std::size_t layer) const {
  double least = std::numeric_limits<double>::infinity();
  for (const Candidate& mode : candidates.of(layer)) {
    least = std::min(least, priced_ns(mode, layer));
  }
  return least;
}

double LpCertificate::certify(const Candidates& candidates, double budget) const {
  const std::size_t layers = candidates.layers();
  const auto tail = static_cast<double>(candidates.tail_bytes());
  double bound = slope_[layers] * tail - slope_[0] * budget;
  double size = slope_[layers] * std::abs(tail) + slope_[0] * std::abs(budget);
  for (std::size_t i = 0; i < layers; ++i) {
    const double later = slope_[i + 1];
    const double here = slope_[i] - slope_[i + 1];
    bound += least_priced_ns(candidates, i);
    size += sizes_[i].time + later * sizes_[i].kept + here * sizes_[i].peak;
  }
  // Each term has a few roundings and the sum one per layer, all relative to sizes counted here.
  return bound - size * static_cast<double>(layers + 8) * std::numeric_limits<double>::epsilon();
}

void LpCertificate::prepare_rest(const Candidates& candidates, std::int64_t budget_bytes) {
  const std::size_t layers = candidates.layers();
  const auto tail = static_cast<double>(candidates.tail_bytes());
  rest_.assign(layers + 1, slope_[layers] * tail);
  double size = slope_[layers] * std::abs(tail);
  for (std::size_t i = layers; i-- > 0;) {
    const double later = slope_[i + 1];
    const double here = slope_[i] - slope_[i + 1];
    rest_[i] = rest_[i + 1] + least_priced_ns(candidates, i);
    size += sizes_[i].time + (later + slope_[0]) * sizes_[i].kept + here * sizes_[i].peak;
  }
  // As in certify(); a room is the budget less what some layers hold.
  size += slope_[0] * std::abs(static_cast<double>(budget_bytes));
  const double error =
      size * static_cast<double>(layers + 8) * std::numeric_limits<double>::epsilon();
  for (double& rest : rest_) rest -= error;
}

std::size_t LpCertificate::cheapest(const Candidates& candidates, std::size_t layer) const {
  const auto modes = candidates.of(layer);
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t m = 0; m < modes.size(); ++m) {
    const double cost = priced_ns(modes[m], layer);
    if (cost >= least) continue;
    least = cost;
    best = m;
  }
  return best;
}

std::int64_t LpCertificate::bound_ns(const Candidates& candidates, std::int64_t budget_bytes) {
  prepare(candidates);
  const auto budget = static_cast<double>(budget_bytes);
  const std::size_t layers = candidates.layers();
  // First with each layer's least W, then with the W of the modes that the multipliers prefer.
  room_.resize(layers);
  for (std::size_t i = 0; i < layers; ++i) {
    const auto modes = candidates.of(i);
    room_[i] = static_cast<double>(
        std::ranges::min_element(modes, {}, &Candidate::peak_bytes)->peak_bytes);
  }
  multipliers(candidates, budget);
  const double first = certify(candidates, budget);
  best_slope_ = slope_;
  for (std::size_t i = 0; i < layers; ++i) {
    room_[i] = static_cast<double>(candidates.of(i)[cheapest(candidates, i)].peak_bytes);
  }
  multipliers(candidates, budget);
  const double second = certify(candidates, budget);
  if (second < first) slope_.swap(best_slope_);
  const double bound = std::max(0.0, std::max(first, second));
  // Times are whole nanoseconds, so the bound rounds up.
  return std::min(candidates.slowest_ns(), static_cast<std::int64_t>(std::ceil(bound)));
}

void LpCertificate::round(const Candidates& candidates, std::int64_t budget_bytes,
                          Choice* choice) const {
  choice->resize(candidates.layers());
  const auto floors = candidates.floors();
  std::int64_t left = budget_bytes;
  for (std::size_t i = 0; i < choice->size(); ++i) {
    const auto modes = candidates.of(i);
    std::size_t best = modes.size();
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t m = 0; m < modes.size(); ++m) {
      if (modes[m].peak_bytes > left) continue;
      if (saturating_add(modes[m].kept_bytes, floors[i + 1]) > left) continue;
      const double cost = static_cast<double>(modes[m].time_ns) +
                          slope_[i + 1] * static_cast<double>(modes[m].kept_bytes) +
                          (slope_[i] - slope_[i + 1]) * static_cast<double>(modes[m].peak_bytes);
      if (cost >= least) continue;
      least = cost;
      best = m;
    }
    if (best == modes.size()) throw BugError("certificate: the budget is below the floor");
    (*choice)[i] = static_cast<std::uint8_t>(best);
    left = saturating_subtract(left, modes[best].kept_bytes);
  }
}

}  // namespace pudica::planner
