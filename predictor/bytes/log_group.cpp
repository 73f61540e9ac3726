#include "predictor/bytes/log_group.h"

#include <algorithm>

namespace pudica::predictor {
namespace {

std::uint64_t unit_pattern(const ShapeKey& shape) { return std::uint64_t{1} << ones_of(shape); }

// One or two shapes may be of a run's first steps, which are not as the others. More that are all
// shorter, or all longer, are of lengths that rise or fall through a run.
bool gave_way(const LogGroup& before, const LogGroup& after) {
  constexpr std::size_t kFirstSteps = 2;
  if (before.last_order >= after.first_order || before.recent > 0) return false;
  return before.shapes <= kFirstSteps || !before.shapes_seen.is_of_other_lengths(after.shapes_seen);
}

}  // namespace

void LogGroup::add(const ShapeKey& shape, std::uint64_t order, double volume, bool is_recent) {
  ++shapes;
  if (is_recent) ++recent;
  first_order = std::min(first_order, order);
  last_order = std::max(last_order, order);
  order_sum += order;
  unit_patterns |= unit_pattern(shape);
  shapes_seen.add(shape, volume);
}

bool LogGroup::has_same_samples(const LogGroup& other) const {
  return signature == other.signature && shapes == other.shapes && order_sum == other.order_sum &&
         last_order == other.last_order;
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
  LogChoice choice;
  choice.group = first_of_pattern(groups, shape);
  if (choice.group == nullptr || !choice.group->has_pattern_of(shape)) return choice;
  const auto competes = [&](const LogGroup& group) {
    return &group != choice.group && group.has_pattern_of(shape) &&
           !gave_way(group, *choice.group) && !gave_way(*choice.group, group);
  };
  for (const LogGroup& group : groups) {
    if (&group <= choice.group || !competes(group)) continue;
    const auto made = group.shapes_seen.claim(shape, volume, choice.group->shapes_seen);
    if (made.holds) choice.group = &group;
  }
  for (const LogGroup& group : groups) {
    if (!competes(group)) continue;
    const auto against = group.shapes_seen.claim(shape, volume, choice.group->shapes_seen);
    const auto own = choice.group->shapes_seen.claim(shape, volume, group.shapes_seen);
    if (against.holds || against.is_open) choice.rivals.push_back(&group);
    choice.is_told_apart = choice.is_told_apart && own.holds && !own.is_open;
  }
  return choice;
}

}  // namespace pudica::predictor
