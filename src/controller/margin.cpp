#include "controller/margin.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace pudica {

Margin::Margin(double revocation_rate) : rate_(std::clamp(revocation_rate, 1e-4, 0.5)) {}

void Margin::add(double relative_error) {
  if (!std::isfinite(relative_error)) return;
  errors_.push_back(relative_error);
  if (errors_.size() > kWindow) errors_.pop_front();
  refresh();
}

void Margin::reset() {
  errors_.clear();
  refresh();
}

std::int64_t Margin::held_back_bytes(std::int64_t budget_bytes) const {
  const double share = fraction_ / (1 + fraction_);
  return static_cast<std::int64_t>(std::ceil(share * static_cast<double>(budget_bytes)));
}

void Margin::refresh() {
  const std::size_t count = errors_.size();
  const auto rank =
      static_cast<std::size_t>(std::ceil(static_cast<double>(count + 1) * (1 - rate_)));
  if (rank > count) {
    const double prior =
        count >= 16 ? 0 : kPriorFraction * std::pow(0.5, static_cast<double>(count));
    const double largest = count == 0 ? 0 : *std::ranges::max_element(errors_);
    fraction_ = std::max(prior, largest);
    return;
  }
  std::vector<double> sorted(errors_.begin(), errors_.end());
  const auto wanted = sorted.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::ranges::nth_element(sorted, wanted);
  fraction_ = std::max(0.0, *wanted);
}

}  // namespace pudica
