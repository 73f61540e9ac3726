// What the layers of a step took, without its record.
#pragma once

#include <vector>

#include "pudica/policy.h"
#include "torch/step_profile.h"

namespace pudica::hooks {

struct StepTimes {
  std::vector<ForwardTime> forwards;
  std::vector<RecomputeTime> recomputes;  // of calls whose recompute was that of their mode
  std::vector<LateSegment> late;          // of both, what a device has not come to yet
};

StepTimes sum_times(const std::vector<RecordedCall>& calls);

}  // namespace pudica::hooks
