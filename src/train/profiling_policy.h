// Runs every layer in one mode and keeps what the step showed: for measuring beforehand.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/layer_order.h"
#include "pudica/policy.h"

namespace pudica::train {

// Layers of a class whose menu lacks the mode are kept. Not thread-safe.
class ProfilingPolicy final : public Policy {
 public:
  explicit ProfilingPolicy(bool wants_menus = false) : wants_menus_(wants_menus) {}

  [[nodiscard]] std::string name() const override { return "profiling"; }
  [[nodiscard]] bool wants_menus() const override { return wants_menus_; }
  void on_structure(const StepStructure& known) override { structure = known; }
  StepDecision begin_step(const StepContext& context) override {
    Plan plan;
    plan.id = 1;
    plan.shape = context.shape;
    plan.default_mode = mode;
    if (wants_menus_) name_modes(plan);
    plan.reason = "profiling";
    return {std::make_shared<const Plan>(std::move(plan)), true};
  }
  void end_step(const StepOutcome& ended) override { outcome = ended; }
  void learn_times(const std::vector<SegmentTime>& times) override {
    late.insert(late.end(), times.begin(), times.end());
  }

  // Of the class's menu, as far as it is known.
  [[nodiscard]] std::size_t steps_of(std::uint16_t layer_class) const {
    return layer_class < structure.menus.size() ? structure.menus[layer_class].steps.size() : 0;
  }
  [[nodiscard]] bool knows_menus() const {
    return std::ranges::all_of(structure.layers, [this](const StepStructure::Layer& layer) {
      const std::size_t number = layer.layer_class;
      return number < structure.menus.size() && structure.menus[number].id != 0;
    });
  }

  Mode mode = Mode::keep();       // of the next step
  StepStructure structure;        // of the latest
  StepOutcome outcome;            // likewise
  std::vector<SegmentTime> late;  // of devices that work on their own

 private:
  void name_modes(Plan& plan) const {
    for (const StepStructure::Layer& layer : structure.layers) {
      const bool runs =
          mode.kind != Mode::Kind::kSelective || mode.step < steps_of(layer.layer_class);
      plan.modes.push_back(runs ? mode : Mode::keep());
    }
    plan.layer_classes = order_of(structure);
  }

  bool wants_menus_;
};

}  // namespace pudica::train
