#include "base/nearest_name.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace pudica {

std::size_t edit_distance(std::string_view left, std::string_view right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < left.size(); ++i) {
    std::size_t diagonal = row[0];  // distance of the prefixes without either last character
    row[0] = i + 1;
    for (std::size_t j = 0; j < right.size(); ++j) {
      const std::size_t substituted = diagonal + (left[i] == right[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::string did_you_mean(std::string_view seen, std::span<const std::string> known) {
  const std::string* nearest = nullptr;
  std::size_t least = std::numeric_limits<std::size_t>::max();
  for (const std::string& name : known) {
    const std::size_t distance = edit_distance(seen, name);
    if (distance < least && 2 * distance <= std::max(name.size(), seen.size())) {
      least = distance;
      nearest = &name;
    }
  }
  return nearest == nullptr ? std::string() : "; did you mean '" + *nearest + "'?";
}

std::string joined_names(std::span<const std::string> names) {
  std::string text;
  for (const std::string& name : names) {
    if (!text.empty()) text += ", ";
    text += name;
  }
  return text;
}

}  // namespace pudica
