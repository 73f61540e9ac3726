// Order statistics of small samples.
#pragma once

#include <optional>
#include <vector>

namespace pudica::train {

// The middle value, or the mean of the two; nothing of an empty sample.
std::optional<double> median(std::vector<double> values);
// Nearest rank: the least value that at least `fraction` of the sample do not exceed. Requires: a
// fraction in (0, 1].
std::optional<double> quantile(std::vector<double> values, double fraction);
std::optional<double> mean(const std::vector<double>& values);

}  // namespace pudica::train
