// Phase: when the controller learns, when it plans and when it stands down.
#pragma once

#include <cstdint>
#include <string>

#include "pudica/controller.h"

namespace pudica {

// What is known when a step begins.
struct PhaseInputs {
  bool structure_known = false;
  bool relearning = false;          // a drift was seen, and no step recorded since
  bool costs_known = false;         // every segment is known at all
  bool unmeasurable = false;        // most of the latest steps teach nothing
  bool fit = false;                 // from enough shapes for the one asked
  std::int64_t recorded_steps = 0;  // that taught something
  std::int64_t learning_steps = 0;  // that were spent, since learning last began
  std::string unknown;              // what is missing, in words
};

struct Phase {
  ControllerState state = ControllerState::kLearning;
  std::string reason;
};

// learning -> planning when every segment is fit and the least number of steps was recorded, or
// when the most were spent; standing down when those taught too little to plan at all.
Phase next_phase(const PhaseInputs& inputs, const ControllerOptions& options);

// Counts steps in a row whose measured peak is not the predicted one. Thread-safe: no.
class DriftDetector {
 public:
  static constexpr std::int64_t kStepsInARow = 3;

  explicit DriftDetector(double threshold) : threshold_(threshold) {}

  [[nodiscard]] bool is_misfit(double relative_error) const;
  // Returns true when this step makes it a drift; the count starts anew.
  bool add(double relative_error);
  // A drift whose recorded step matched the model after all: the next one takes twice as many
  // steps, so that a disturbance we cannot learn does not keep us learning.
  void drift_was_fruitless();
  // A drift that was learned, or a fresh start.
  void reset();
  [[nodiscard]] bool had_fruitless_drift() const { return needed_ > kStepsInARow; }

 private:
  static constexpr std::int64_t kMostSteps = 1 << 16;

  double threshold_;
  std::int64_t needed_ = kStepsInARow;
  std::int64_t in_a_row_ = 0;
};

}  // namespace pudica
