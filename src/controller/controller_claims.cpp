// What the controller does with a restored state until its own steps agree with it.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "controller/controller_impl.h"

namespace pudica {
namespace {

// As cheap in bytes as layers on their own can be: a segment of several takes more than a claim to
// be entered, since it cannot be taken back.
std::vector<std::uint8_t> sheltered(const StepCosts& costs, std::vector<std::uint8_t> choice) {
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const auto& modes = costs.layers[i].modes;
    const auto full = std::ranges::find(modes, Mode::full(), &LayerModeCosts::mode);
    if (full != modes.end()) choice[i] = static_cast<std::uint8_t>(full - modes.begin());
  }
  return choice;
}

}  // namespace

// A plan on the word of a restored state. It is not cached: the next one may be trusted.
StepDecision ControllerImpl::try_claims(BuiltPlan built, const StepModel& model,
                                        const StepContext& context, bool certain) {
  Plan& plan = built.plan;
  if (!plan.feasible || !plan.joined.empty()) {
    const std::vector<std::uint8_t> choice = sheltered(model.point, built.choice);
    for (std::size_t i = 0; i < choice.size(); ++i) {
      plan.modes[i] = model.point.layers[i].modes[choice[i]].mode;
    }
    plan.joined.clear();
    plan.forward_need_bytes.clear();
    plan.backward_need_bytes.clear();
    plan.predicted_peak_bytes = context.base_bytes + Bytes(step_peak_bytes(model.point, choice));
    plan.predicted_extra_seconds = step_extra_seconds(model.point, choice);
  }
  plan.revocable = true;
  plan.reason += "; from a learned state that no step here has confirmed yet";
  return publish(std::move(plan), {0, true, certain}, true);
}

// False: the step and the state contradict each other, and which of them is odd is not known yet.
// They are not mixed.
bool ControllerImpl::agrees_with_claims(const StepOutcome& outcome,
                                        std::optional<double> peak_error) {
  switch (
      claims_.judge(learner_, kind_->structure, outcome, peak_error, options_.warmup_fit_error)) {
    case Claims::Verdict::kRefuted:
      drop_claims();
      return true;
    case Claims::Verdict::kContradicts:
      clear_plans();
      room_.margin.reset();
      return false;
    case Claims::Verdict::kNothingSaid:
    case Claims::Verdict::kAgrees:
      break;
  }
  return true;
}

// Nothing of the state stays: its other quantities are of the same hand.
void ControllerImpl::drop_claims() {
  ++counters_.refused_states;
  log_info("the learned state is dropped: step " + std::to_string(step_) +
           " needed something else than it says");
  claims_.drop();
  learner_.forget();
  for (const auto& kind : kinds_) kind->forget();
  room_.margin.reset();
  base_.drop_restored();
}

}  // namespace pudica
