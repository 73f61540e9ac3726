// Modes of the menu measured in steps that are planned already, in layers where there is room.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pudica/mode.h"
#include "pudica/step_costs.h"

namespace pudica {

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
};

// Lessons for `model.unknown`, each mode in one layer of its class, none in two, such that the step
// stays within `room_bytes` above base. Layers of a joint segment run as planned: their forward is
// one. A mode that was not measured holds at most what `keep` holds, and needs in its backward what
// `keep` or `full` need there and a quarter of that; one that was seen at another shape, at most
// UnknownMode::seen. Requires: `choice` indexes the modes of model.upper; `joined` as in Plan.
MenuLessons lessons_within(const StepModel& model, std::span<const std::uint8_t> choice,
                           std::span<const std::uint8_t> joined, std::int64_t room_bytes);

}  // namespace pudica
