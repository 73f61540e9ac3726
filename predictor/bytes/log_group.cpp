#include "predictor/bytes/log_group.h"

#include <algorithm>
#include <optional>

namespace pudica::predictor {
namespace {

std::uint64_t unit_pattern(const ShapeKey& shape) { return std::uint64_t{1} << ones_of(shape); }

// Where a shape stands between two groups whose shapes do not mix.
enum class Side : std::uint8_t { kOfOne, kNearerOne, kNearerOther, kOfOther };

std::optional<Side> side_by_volume(double volume, const LogGroup& one, const LogGroup& other) {
  const bool is_above = one.least_volume > other.most_volume;
  if (!is_above && one.most_volume >= other.least_volume) return std::nullopt;
  const double to_one = is_above ? one.least_volume - volume : volume - one.most_volume;
  const double to_other = is_above ? volume - other.most_volume : other.least_volume - volume;
  if (to_one <= 0) return Side::kOfOne;
  if (to_other <= 0) return Side::kOfOther;
  return to_one < to_other ? Side::kNearerOne : Side::kNearerOther;
}

struct Claim {
  bool holds = false;
  bool is_open = false;
};

Claim claim(const LogGroup& one, const LogGroup& other, const ShapeKey& shape, double volume) {
  const auto gave_way = [](const LogGroup& before, const LogGroup& after) {
    return before.last_order < after.first_order && before.recent == 0;
  };
  if (gave_way(one, other) || gave_way(other, one)) return {};
  const auto vectors = one.whole_vectors.claims(shape, other.whole_vectors);
  const auto side = side_by_volume(volume, one, other);
  if (!side) return {vectors.value_or(false), false};
  const bool is_nearer = *side == Side::kOfOne || *side == Side::kNearerOne;
  const bool is_between = *side == Side::kNearerOne || *side == Side::kNearerOther;
  if (!vectors) return {is_nearer, is_between};
  // Either may be what tells them apart.
  return {*vectors && is_nearer, *vectors != is_nearer || is_between};
}

}  // namespace

void LogGroup::add(const ShapeKey& shape, std::uint64_t order, double volume, bool is_recent) {
  ++shapes;
  if (is_recent) ++recent;
  first_order = std::min(first_order, order);
  last_order = std::max(last_order, order);
  unit_patterns |= unit_pattern(shape);
  whole_vectors.add(shape);
  least_volume = std::min(least_volume, volume);
  most_volume = std::max(most_volume, volume);
}

bool LogGroup::is_alike(const LogGroup& other) const {
  return signature == other.signature && unit_patterns == other.unit_patterns &&
         whole_vectors == other.whole_vectors && least_volume == other.least_volume &&
         most_volume == other.most_volume && first_order == other.first_order &&
         (recent == 0) == (other.recent == 0);
}

bool LogGroup::has_pattern_of(const ShapeKey& shape) const {
  return (unit_patterns & unit_pattern(shape)) != 0;
}

const LogGroup* first_of_pattern(const std::vector<LogGroup>& groups, const ShapeKey& shape) {
  if (groups.empty()) return nullptr;
  for (const LogGroup& group : groups) {
    if (group.has_pattern_of(shape)) return &group;
  }
  return &groups.front();
}

LogChoice choose_log(const std::vector<LogGroup>& groups, const ShapeKey& shape, double volume) {
  LogChoice choice{first_of_pattern(groups, shape), nullptr};
  if (choice.group == nullptr || !choice.group->has_pattern_of(shape)) return choice;
  for (const LogGroup& group : groups) {
    if (&group <= choice.group || !group.has_pattern_of(shape)) continue;
    const Claim made = claim(group, *choice.group, shape, volume);
    if (made.holds) {
      choice = {&group, made.is_open ? choice.group : nullptr};
    } else if (made.is_open) {
      choice.rival = &group;
    }
  }
  return choice;
}

}  // namespace pudica::predictor
