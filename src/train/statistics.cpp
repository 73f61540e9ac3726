#include "train/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace pudica::train {

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const auto half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::optional<double> quantile(std::vector<double> values, double fraction) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const auto count = static_cast<double>(values.size());
  const auto rank = static_cast<std::size_t>(std::ceil(fraction * count));
  return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

std::optional<double> mean(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace pudica::train
