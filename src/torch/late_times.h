// LateTimes: what segments of past steps took, kept until the device has come there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "pudica/policy.h"
#include "torch/step_profile.h"

namespace pudica::hooks {

// Not thread-safe.
class LateTimes {
 public:
  // What of one step is still to be told.
  struct Step {
    ShapeKey shape;
    std::uint64_t number = 0;
    std::vector<LateSegment> segments;
  };

  // Of a step that ended. Where the device is too many steps behind, the oldest is forgotten.
  void add(const StepContext& context, std::vector<LateSegment> segments);
  // Those of the steps that the device has done, oldest first. Each is given once; never waits.
  [[nodiscard]] std::vector<SegmentTime> take();
  void clear() { steps_.clear(); }

 private:
  static constexpr std::size_t kMostSteps = 16;

  std::deque<Step> steps_;
};

}  // namespace pudica::hooks
