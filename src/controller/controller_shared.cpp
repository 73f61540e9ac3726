// Forwards that share a backward: the plan of each.
#include <string>
#include <utility>
#include <vector>

#include "controller/controller_impl.h"
#include "controller/shared_step.h"

namespace pudica {

StepCosts repeated(const StepCosts& costs, std::size_t times) {
  StepCosts out = costs;
  for (LayerCosts& layer : out.layers) layer.residue_bytes = 0;
  const std::vector<LayerCosts> earlier = out.layers;
  out.layers.clear();
  for (std::size_t k = 0; k < times; ++k) {
    const auto& layers = k + 1 < times ? earlier : costs.layers;
    out.layers.insert(out.layers.end(), layers.begin(), layers.end());
  }
  out.step_seconds = costs.step_seconds * static_cast<double>(times);
  return out;
}

StepModel repeated(const StepModel& model, std::size_t times) {
  StepModel out = model;
  out.point = repeated(model.point, times);
  out.upper = repeated(model.upper, times);
  return out;
}

void take_first(BuiltPlan& built, const StepCosts& costs, const StepContext& context) {
  Plan& plan = built.plan;
  const std::size_t layers = costs.layers.size();
  built.choice.resize(layers);
  plan.modes.resize(layers);
  plan.forward_need_bytes.resize(layers);
  plan.backward_need_bytes.resize(layers);
  if (!plan.joined.empty()) plan.joined.resize(layers);
  plan.predicted_extra_seconds = step_extra_seconds(costs, built.choice);
  plan.certified_gap_seconds = 0;
  plan.predicted_peak_bytes = Bytes(0);
  plan.revocable = context.budget_bytes > Bytes(0);
  if (!plan.feasible) {
    // What the forwards before it keep is in base_bytes, and can be revoked.
    plan.feasible = true;
    plan.reason = "recomputed as far as can be, earlier forwards give back what is missing";
  }
  const std::int32_t forwards = context.waiting_forwards + 1 + context.following_forwards;
  plan.reason += "; forward " + std::to_string(context.waiting_forwards + 1) + " of " +
                 std::to_string(forwards) + " that share a backward";
}

StepDecision ControllerImpl::plan_shared(const StepContext& context, const StepModel& model) {
  const auto forwards = 1 + static_cast<std::size_t>(context.following_forwards);
  StepModel together = repeated(model, forwards);
  BuiltPlan built = built_plan(*kind_, context, together, {});
  if (!built.plan.feasible && context.waiting_forwards > 0) {
    // What returns once this forward has is what those that wait hold. Most of it can be revoked
    // before; for the rest this forward's own layers are.
    together.point.returning_bytes = together.upper.returning_bytes = 0;
    built = built_plan(*kind_, context, together, {});
  }
  const bool doubted = claims_.doubts(kind_->structure, built.plan);
  if (doubted) built.plan.joined.clear();
  const bool record = wants_record(context, model, is_certain(together, built)) || doubted;
  if (may_teach(context, model, built.plan)) note_wanted(context, together, built.plan);
  take_first(built, model.upper, context);
  ++counters_.plans_made;
  const bool taught = context.following_forwards == 0 && may_teach(context, model, built.plan) &&
                      measure_beside(context, model, built, {});
  return publish(std::move(built.plan), {}, record || taught);
}

}  // namespace pudica
