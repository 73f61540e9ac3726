// Forwards that share a backward: the plan of each.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/controller_impl.h"
#include "controller/shared_step.h"

namespace pudica {

StepCosts without_new_gradients(StepCosts costs) {
  for (LayerCosts& layer : costs.layers) layer.residue_bytes = 0;
  return costs;
}

StepCosts followed(const StepCosts& first, const StepCosts& following, std::size_t count) {
  if (count == 0) return first;
  StepCosts out = without_new_gradients(following);
  const auto between = std::exchange(out.layers, without_new_gradients(first).layers);
  for (std::size_t k = 1; k <= count; ++k) {
    const auto& layers = k < count ? between : following.layers;
    out.layers.insert(out.layers.end(), layers.begin(), layers.end());
  }
  out.step_seconds = first.step_seconds + following.step_seconds * static_cast<double>(count);
  return out;
}

StepModel followed(const StepModel& first, const StepModel& following, std::size_t count) {
  StepModel out = first;
  out.point = followed(first.point, following.point, count);
  out.upper = followed(first.upper, following.upper, count);
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
  plan.peak_is_bound = false;
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

void WaitingForwards::begin(const StepContext& context) {
  const std::optional<Forward> before = std::exchange(latest_, std::nullopt);
  if (context.waiting_forwards > 0) find_casts_ = context.casts_present;
  if (context.waiting_forwards == 0) {
    forwards_.clear();
    first_base_bytes_ = context.base_bytes;
    known_ = true;
    return;
  }
  if (before) {
    forwards_.push_back(*before);
    forwards_.back().end_bytes = context.base_bytes + context.returning_bytes;
  }
  known_ = known_ && std::ssize(forwards_) == context.waiting_forwards;
}

void WaitingForwards::plan(const StepPeaks& peaks, const StepCosts& costs) {
  latest_ = {costs.waiting_net_bytes,
             peaks.backward_bytes - peaks.live_behind_forward,
             peaks.live_behind_backward - costs.head_net_bytes,
             {}};
}

std::optional<Bytes> WaitingForwards::peak(std::int64_t live_behind_backward) const {
  if (!known_) return std::nullopt;
  Bytes peak(0);
  std::int64_t left = live_behind_backward;
  for (auto forward = forwards_.rbegin(); forward != forwards_.rend(); ++forward) {
    const Bytes live = forward->end_bytes - Bytes(forward->tail_net_bytes);
    peak = std::max(peak, live + Bytes(left + forward->rise_bytes));
    left += forward->left_bytes;
  }
  return peak;
}

// What the step needs: until its forward is over where others follow it, else to its end, with the
// backward of those before it. Left out where that is not known.
void ControllerImpl::predict_shared(const StepContext& context, const StepModel& model,
                                    BuiltPlan& built) {
  Plan& plan = built.plan;
  const auto peaks_of = [&](const StepCosts& costs) {
    return step_peaks(costs, built.choice, plan.joined);
  };
  const bool waits = context.following_forwards > 0;
  if (waits && model.may_wait) {
    waiting_.plan(peaks_of(without_new_gradients(model.upper)), model.point);
  }
  if (!context.forwards_are_sure) return;
  // Held until this one returns, or until the backward: nobody knows.
  if (context.waiting_forwards > 0 && context.returning_bytes > Bytes(0)) return;
  const auto own_peak = [&](const StepCosts& costs) {
    const StepPeaks peaks = peaks_of(costs);
    const Bytes forward = Bytes(peaks.forward_bytes) + context.returning_bytes;
    if (waits) {
      const Bytes tail(peaks.live_behind_forward + costs.waiting_peak_bytes);
      return context.base_bytes + std::max(forward, tail + context.returning_bytes);
    }
    const Bytes returned = Bytes(peaks.until_return_bytes) + context.returning_bytes;
    const Bytes optimizer(peaks.live_behind_backward + costs.optimizer_peak_bytes);
    return std::max(context.base_bytes + std::max({returned, Bytes(peaks.backward_bytes)}),
                    waiting_.first_base_bytes() + optimizer);
  };
  if (waits ? !model.may_wait : !model.fit) return;
  const Bytes point = own_peak(model.point);
  const Bytes upper = own_peak(model.upper);
  const auto others =
      waits ? std::optional(Bytes(0)) : waiting_.peak(peaks_of(model.upper).live_behind_backward);
  if (!others) return;
  const Bytes peak = std::max(*others, tells_little(point, upper) ? upper : point);
  // What is given back of the forwards before, it does not need.
  if (context.budget_bytes > Bytes(0) && peak > context.budget_bytes) return;
  plan.peak_is_bound = peak > point;
  plan.predicted_peak_bytes = peak;
}

// Those that follow may find the weights cast, as the latest did that followed another one.
StepModel ControllerImpl::model_of_all(const StepContext& context, const StepModel& model) const {
  const auto count = static_cast<std::size_t>(context.following_forwards);
  if (count == 0 || context.casts_present || !waiting_.find_casts()) {
    return followed(model, model, count);
  }
  StepContext next = context;
  next.casts_present = true;
  const Result<StepModel> following = model_of(*kind_, next);
  return followed(model, following ? *following : model, count);
}

StepDecision ControllerImpl::plan_shared(const StepContext& context, const StepModel& model) {
  StepModel together = model_of_all(context, model);
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
  predict_shared(context, model, built);
  ++counters_.plans_made;
  const bool taught = context.following_forwards == 0 && may_teach(context, model, built.plan) &&
                      measure_beside(context, model, built, {});
  const Pending pending{0, !taught && built.plan.predicts_peak(), false};
  return publish(std::move(built.plan), pending, record || taught);
}

}  // namespace pudica
