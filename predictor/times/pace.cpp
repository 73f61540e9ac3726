#include "predictor/times/pace.h"

#include <algorithm>
#include <cmath>

namespace pudica {
namespace {

constexpr std::size_t kWindow = 15;
constexpr std::size_t kEnough = 5;
constexpr double kMoved = 0.05;  // relative
constexpr double kMovedFar = 0.1;
constexpr double kFarthest = 1e6;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace

bool Pace::set(double value) {
  if (!(value >= 1 / kFarthest && value <= kFarthest)) return false;
  *this = Pace();
  value_ = counted_ = value;
  return true;
}

void Pace::note(double ratio) {
  if (!std::isfinite(ratio) || ratio <= 0) return;
  if (ratios_.size() < kWindow) {
    ratios_.push_back(ratio);
  } else {
    ratios_[next_] = ratio;
    next_ = (next_ + 1) % kWindow;
  }
  if (ratios_.size() < kEnough) return;
  const double now = std::clamp(median(ratios_), 1 / kFarthest, kFarthest);
  if (std::abs(now / value_ - 1) <= kMoved) return;
  value_ = now;
  if (std::abs(now / counted_ - 1) <= kMovedFar) return;
  counted_ = now;
  ++changes_;
}

}  // namespace pudica
