// A controller and a synthetic model run together, for the tests of the controller.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "pudica/controller.h"
#include "pudica/plan_builder.h"
#include "support/synthetic_model.h"

namespace pudica::testing {

// What one step did, next to what perfect knowledge would have done.
struct HarnessStep {
  StepDecision decision;
  StepDecision first_decision;  // before the step's first layer showed what kind of step it is
  StepOutcome outcome;
  ControllerState state = ControllerState::kLearning;
};

// The plan's modes by their places in the costs.
inline std::vector<std::uint8_t> choice_of(const Plan& plan, const StepCosts& costs) {
  std::vector<std::uint8_t> choice;
  for (std::size_t i = 0; i < costs.layers.size(); ++i) {
    const auto& modes = costs.layers[i].modes;
    const auto found = std::ranges::find(modes, plan.modes[i], &LayerModeCosts::mode);
    choice.push_back(static_cast<std::uint8_t>(found - modes.begin()));
  }
  return choice;
}

inline std::int64_t selective_layers(const Plan& plan) {
  return std::ranges::count_if(plan.modes,
                               [](Mode mode) { return mode.kind == Mode::Kind::kSelective; });
}

class Harness {
 public:
  explicit Harness(const SyntheticSpec& spec, const ControllerOptions& options = {})
      : model(spec), controller(make_controller(options)) {}

  // `rests`: its layers are passed by, so that nobody tells which they were.
  HarnessStep step(const ShapeKey& shape, Bytes budget_bytes, bool rests = false) {
    HarnessStep out;
    if (late_.size() > steps_late) {
      controller->learn_times(late_.front());
      late_.pop_front();
    }
    const StepContext context = model.context(shape, budget_bytes);
    const StepStructure structure = model.structure();
    out.decision = controller->begin_step(context);
    out.first_decision = out.decision;
    if (out.decision.may_change) {
      auto other = controller->replan(context, structure.layers[0].layer_class);
      if (other) out.decision = *other;
    }
    out.state = controller->state();
    out.outcome = model.run(context, out.decision);
    if (caches) out.outcome.allocator = AllocatorPeaks{};
    out.outcome.rested = rests;
    if (!rests) controller->on_structure(structure);
    if (steps_late > 0) late_.push_back(take_times(out.outcome));
    controller->end_step(out.outcome);
    return out;
  }

  // The plan of perfect knowledge, without margin.
  [[nodiscard]] BuiltPlan oracle(const StepContext& context) const {
    PlanRequest request;
    request.context = context;
    const auto planner = make_planner({});
    StepCosts costs = model.true_costs(context.shape, context.gradients_present);
    costs.returning_bytes = context.returning_bytes.count();
    return build_plan(*planner, costs, request, {});
  }

  // What the step's plan really costs.
  [[nodiscard]] double true_extra_seconds(const HarnessStep& step) const {
    const StepContext& context = step.outcome.context;
    const StepCosts costs = model.true_costs(context.shape, context.gradients_present);
    return step_extra_seconds(costs, choice_of(*step.decision.plan, costs));
  }

  // `share` of the way from the least peak to keeping all, at this shape.
  [[nodiscard]] Bytes budget_at(const ShapeKey& shape, double share) const {
    const StepCosts costs = model.true_costs(shape, false);
    const std::vector<std::uint8_t> keep(costs.layers.size(), 0);
    const std::vector<std::uint8_t> full(costs.layers.size(), 1);
    const auto most = static_cast<double>(step_peak_bytes(costs, keep));
    const auto least = static_cast<double>(step_peak_bytes(costs, full));
    return model.settled_base() + Bytes(static_cast<std::int64_t>(least + share * (most - least)));
  }

  SyntheticModel model;
  std::unique_ptr<Controller> controller;
  // > 0: of a device that works on its own and is so many steps behind when a step begins.
  std::size_t steps_late = 0;
  bool caches = false;  // of a device whose allocator does

 private:
  static std::vector<SegmentTime> take_times(StepOutcome& outcome) {
    const ShapeKey& shape = outcome.context.shape;
    std::vector<SegmentTime> times;
    for (SegmentObservation& item : outcome.segments) {
      times.push_back({item.key, shape, std::exchange(item.sample.seconds, 0.0)});
    }
    for (const RecomputeTime& time : outcome.recomputes) {
      times.push_back(
          {{SegmentKind::kRecompute, time.layer_class, time.mode, 0}, shape, time.seconds});
    }
    for (const ForwardTime& time : outcome.forwards) {
      times.push_back(
          {{SegmentKind::kForward, time.layer_class, Mode::keep(), 0}, shape, time.seconds});
    }
    for (SegmentTime& time : times) time.step = outcome.context.step;
    outcome.recomputes.clear();
    outcome.forwards.clear();
    return times;
  }

  std::deque<std::vector<SegmentTime>> late_;
};

// Lengths as they come in training: all distinct at first, then repeating.
inline std::vector<std::int64_t> lengths(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(32 + static_cast<std::int64_t>(random() % 61) * 8);
  }
  return out;
}

inline double relative_error(const HarnessStep& step) {
  return static_cast<double>(step.outcome.peak_bytes.count()) /
             static_cast<double>(step.decision.plan->predicted_peak_bytes.count()) -
         1;
}

}  // namespace pudica::testing
