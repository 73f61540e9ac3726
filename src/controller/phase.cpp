#include "controller/phase.h"

#include <algorithm>
#include <cmath>

namespace pudica {

std::string to_string(ControllerState state) {
  switch (state) {
    case ControllerState::kLearning:
      return "learning";
    case ControllerState::kPlanning:
      return "planning";
    case ControllerState::kStandingDown:
      return "standing down";
  }
  return "unknown";
}

Phase next_phase(const PhaseInputs& inputs, const ControllerOptions& options) {
  const std::int64_t least = std::max<std::int64_t>(1, options.warmup_min_steps);
  const std::int64_t most = std::max(least, options.warmup_max_steps);
  if (!inputs.structure_known) {
    if (inputs.learning_steps >= most) {
      return {ControllerState::kStandingDown,
              "no layer was seen in " + std::to_string(inputs.learning_steps) + " steps"};
    }
    return {ControllerState::kLearning, "the layers of a step are not known yet"};
  }
  if (inputs.unmeasurable) {
    return {ControllerState::kStandingDown,
            "the backward goes through the layers more than once in a step (several losses on one "
            "graph, a gradient of a gradient)"};
  }
  if (inputs.learning_steps >= most) {
    if (inputs.costs_known) {
      return {ControllerState::kPlanning, "warm-up ended after " +
                                              std::to_string(inputs.learning_steps) +
                                              " steps; plans rest on what was learned"};
    }
    return {ControllerState::kStandingDown, "warm-up ended after " +
                                                std::to_string(inputs.learning_steps) + " steps; " +
                                                inputs.unknown};
  }
  if (inputs.relearning) {
    return {ControllerState::kLearning, "measured peaks drifted away from the predicted ones"};
  }
  if (!inputs.costs_known) return {ControllerState::kLearning, inputs.unknown};
  if (!inputs.fit) {
    return {ControllerState::kLearning, "some segment was seen at one shape only"};
  }
  if (inputs.recorded_steps < least) {
    return {ControllerState::kLearning, std::to_string(inputs.recorded_steps) + " of " +
                                            std::to_string(least) + " warm-up steps recorded"};
  }
  return {ControllerState::kPlanning, "every segment is learned"};
}

bool DriftDetector::is_misfit(double relative_error) const {
  return !std::isfinite(relative_error) || std::abs(relative_error) > threshold_;
}

bool DriftDetector::add(double relative_error) {
  if (!is_misfit(relative_error)) {
    in_a_row_ = 0;
    return false;
  }
  if (++in_a_row_ < needed_) return false;
  in_a_row_ = 0;
  return true;
}

void DriftDetector::drift_was_fruitless() { needed_ = std::min(2 * needed_, kMostSteps); }

void DriftDetector::reset() {
  needed_ = kStepsInARow;
  in_a_row_ = 0;
}

}  // namespace pudica
