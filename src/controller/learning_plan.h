// Which layer runs in which mode while the controller learns.
#pragma once

#include <span>
#include <vector>

#include "pudica/policy.h"
#include "pudica/step_learner.h"

namespace pudica {

struct LearningRequest {
  bool gradients_present = false;
  std::span<const Mode::Kind> menu;  // kinds on offer; empty: all
  std::span<const Mode> planned;     // modes to start from; empty: all `default_mode`
  Mode default_mode = Mode::keep();
};

// Modes by layer that teach `keep`, `full` and the menu of every class while disturbing as few
// layers as can be: one layer of each class (and of each variant with several layers) runs each
// mode that was seen at fewer than two shapes. A class of a single layer alternates.
std::vector<Mode> learning_modes(const StepLearner& learner, const StepStructure& structure,
                                 const LearningRequest& request);

// A selective mode of some class's menu was seen at fewer than two shapes.
bool lacks_menu_modes(const StepLearner& learner, const StepStructure& structure,
                      const LearningRequest& request);

}  // namespace pudica
