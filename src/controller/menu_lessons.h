// Modes of the menu that were not measured yet, in steps that are planned already: plans that
// reckon with the most they may need, and lessons in layers where there is room.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "pudica/mode.h"
#include "pudica/step_costs.h"

namespace pudica {

// Of what was not measured: what may be relied on, or what is likely.
enum class Reckoning : std::uint8_t { kAtMost, kAsPromised };

// model.upper with the modes of `model.unknown` on the menus of their classes. Each holds what
// `keep` holds less what its menu promises, and needs in its backward
//   at most: what `keep` or `full` need there and a quarter of that;
//   as promised: what `keep` needs, and what it holds less.
// One that was seen at another shape needs at most UnknownMode::seen. What it costs is `full`'s
// time by the share of work that it does again. Menus are those of model.upper with the others
// behind.
StepCosts with_unknown_modes(const StepModel& model, Reckoning reckoning = Reckoning::kAtMost);

// One layer that runs a mode to have it measured.
struct MenuLesson {
  std::size_t layer = 0;
  Mode mode;
  // The most that it may need before it is measured.
  std::int64_t forward_peak_bytes = 0;
  std::int64_t backward_peak_bytes = 0;
};

struct MenuLessons {
  std::vector<MenuLesson> lessons;
  std::int64_t peak_bytes = 0;  // of the step at most, above base; meaningful where not empty
  double extra_seconds = 0;     // what they cost beyond what those layers would
  // With so many more there would have been one more: there was room for it.
  double awaited_seconds = std::numeric_limits<double>::infinity();
};

struct LessonTerms {
  double most_seconds = std::numeric_limits<double>::infinity();
  std::span<const MenuLesson> beside = {};  // whose layers run what they run
};

// Lessons for `model.unknown`, each mode in one layer of its class, none in two, such that the step
// stays within `room_bytes` above base, by the bounds of with_unknown_modes(), and takes at most
// `terms.most_seconds` more. Layers of a joint segment run as planned: their forward is one.
// Requires: `choice` indexes the modes of model.upper; `joined` as in Plan.
MenuLessons lessons_within(const StepModel& model, std::span<const std::uint8_t> choice,
                           std::span<const std::uint8_t> joined, std::int64_t room_bytes,
                           const LessonTerms& terms = {});

}  // namespace pudica
