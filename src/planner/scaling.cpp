#include "planner/scaling.h"

#include <algorithm>
#include <cmath>

#include "planner/saturating.h"

namespace pudica::planner {

void ScaledBytes::scale(const Candidates& candidates) {
  choose_shift(candidates);
  const auto modes = candidates.all();
  kept_.resize(modes.size());
  peak_.resize(modes.size());
  tail_ = round_up(candidates.tail_bytes());
  std::int64_t last_loss = bytes(tail_) - candidates.tail_bytes();
  loss_bytes_ = 0;
  for (std::size_t i = 0; i < candidates.layers(); ++i) {
    std::int64_t layer_loss = 0;
    for (std::size_t n = candidates.first(i); n < candidates.first(i + 1); ++n) {
      kept_[n] = round_up(modes[n].kept_bytes);
      peak_[n] = round_up(modes[n].peak_bytes);
      layer_loss = std::max(layer_loss, bytes(kept_[n]) - modes[n].kept_bytes);
      last_loss = std::max(last_loss, bytes(peak_[n]) - modes[n].peak_bytes);
    }
    loss_bytes_ += layer_loss;
  }
  loss_bytes_ += last_loss;
}

// R_1 is a sum of at most one s per layer and one W (or the tail).
void ScaledBytes::choose_shift(const Candidates& candidates) {
  const auto size = [](std::int64_t bytes) { return std::abs(static_cast<double>(bytes)); };
  double sum = 0;
  double most_peak = size(candidates.tail_bytes());
  for (std::size_t i = 0; i < candidates.layers(); ++i) {
    double most_kept = 0;
    for (const Candidate& mode : candidates.of(i)) {
      most_kept = std::max(most_kept, size(mode.kept_bytes));
      most_peak = std::max(most_peak, size(mode.peak_bytes));
    }
    sum += most_kept;
  }
  sum += most_peak;
  const double spare = 2.0 * static_cast<double>(candidates.layers() + 2);  // for rounding up
  shift_ = 0;
  while (std::ldexp(sum, -shift_) + spare >= kUnitLimit) ++shift_;
}

std::int32_t ScaledBytes::round_up(std::int64_t bytes) const {
  const std::int64_t down = bytes >> shift_;
  return static_cast<std::int32_t>(down + ((down << shift_) == bytes ? 0 : 1));
}

std::int32_t ScaledBytes::safe_units(std::int64_t bytes) const {
  const std::int64_t units = bytes >> shift_;
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(units, -kUnitLimit, kUnitLimit));
}

std::int32_t ScaledBytes::optimistic_units(std::int64_t bytes) const {
  return safe_units(saturating_add(bytes, loss_bytes_));
}

}  // namespace pudica::planner
