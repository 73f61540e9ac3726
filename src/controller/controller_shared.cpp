// Forwards that share a backward: the plan of each.
#include <algorithm>
#include <exception>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/controller_impl.h"
#include "controller/shared_step.h"

namespace pudica {

LayerClasses classes_of(const StepCosts& costs) {
  LayerClasses classes;
  for (const LayerCosts& layer : costs.layers) classes.insert(layer.layer_class);
  return classes;
}

StepCosts without_new_gradients(StepCosts costs, const LayerClasses& classes) {
  for (LayerCosts& layer : costs.layers) {
    if (classes.contains(layer.layer_class)) layer.residue_bytes = 0;
  }
  return costs;
}

StepCosts followed(std::span<const StepCosts> forwards) {
  StepCosts out = forwards.back();
  LayerClasses behind = classes_of(out);
  for (std::size_t i = forwards.size() - 1; i-- > 0;) {
    const StepCosts before = without_new_gradients(forwards[i], behind);
    out.layers.insert(out.layers.begin(), before.layers.begin(), before.layers.end());
    out.step_seconds += before.step_seconds;
    behind.merge(classes_of(before));
  }
  return out;
}

StepModel followed(const std::vector<StepModel>& forwards) {
  std::vector<StepCosts> point;
  std::vector<StepCosts> upper;
  for (const StepModel& forward : forwards) {
    point.push_back(forward.point);
    upper.push_back(forward.upper);
  }
  StepModel out = forwards.front();
  out.point = followed(point);
  out.upper = followed(upper);
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
    ran_.clear();
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

std::shared_ptr<WaitingForwards> make_waiting_forwards() {
  return std::make_shared<WaitingForwards>();
}

void WaitingForwards::ended(const Ran& forward, const StepContext& context, bool waits) {
  const auto set = [this](const ForwardKind& kind, std::optional<Follower> follower) {
    std::erase_if(followers_, [&kind](const auto& known) { return known.first == kind; });
    if (follower) followers_.emplace_back(kind, *follower);
  };
  if (context.waiting_forwards > 0 && !ran_.empty() && !(ran_.back().kind == forward.kind)) {
    set(ran_.back().kind, Follower{forward.kind, context.shape});
  }
  if (waits) {
    ran_.push_back(forward);
  } else {
    set(forward.kind, std::nullopt);
  }
}

const Follower* WaitingForwards::follower(const ForwardKind& kind) const {
  const auto found =
      std::ranges::find(followers_, kind, [](const auto& known) { return known.first; });
  return found == followers_.end() ? nullptr : &found->second;
}

void WaitingForwards::note_shown(const ForwardKind& kind, bool shown) {
  const auto known = std::ranges::find(in_vain_, kind, [](const auto& one) { return one.first; });
  if (known == in_vain_.end()) {
    in_vain_.emplace_back(kind, shown ? 0 : 1);
  } else {
    known->second = shown ? 0 : known->second + 1;
  }
}

bool WaitingForwards::may_be_shown(const ForwardKind& kind) const {
  const auto known = std::ranges::find(in_vain_, kind, [](const auto& one) { return one.first; });
  return known == in_vain_.end() || known->second < kMostInVain;
}

void WaitingForwards::forget(const ForwardKind& kind) {
  std::erase_if(in_vain_, [&](const auto& known) { return known.first == kind; });
  std::erase_if(ran_, [&](const Ran& ran) { return ran.kind == kind; });
  std::erase_if(followers_, [&](const auto& known) {
    return known.first == kind || known.second.kind == kind;
  });
}

void WaitingForwards::forget(const ForwardOwner* owner) {
  std::erase_if(in_vain_, [owner](const auto& known) { return known.first.owner == owner; });
  std::erase_if(ran_, [owner](const Ran& ran) { return ran.kind.owner == owner; });
  std::erase_if(followers_, [owner](const auto& known) {
    return known.first.owner == owner || known.second.kind.owner == owner;
  });
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
                                    const LayerClasses& behind, BuiltPlan& built) {
  Plan& plan = built.plan;
  const auto peaks_of = [&](const StepCosts& costs) {
    return step_peaks(costs, built.choice, plan.joined);
  };
  const bool waits = context.following_forwards > 0;
  if (waits && model.may_wait) {
    waiting_->plan(peaks_of(without_new_gradients(model.upper, behind)), model.point);
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
                    waiting_->first_base_bytes() + optimizer);
  };
  if (waits ? !model.may_wait : !model.fit) return;
  const Bytes point = own_peak(model.point);
  const Bytes upper = own_peak(model.upper);
  const auto others =
      waits ? std::optional(Bytes(0)) : waiting_->peak(peaks_of(model.upper).live_behind_backward);
  if (!others) return;
  const Bytes peak = std::max(*others, tells_little(point, upper) ? upper : point);
  // What is given back of the forwards before, it does not need.
  if (context.budget_bytes > Bytes(0) && peak > context.budget_bytes) return;
  plan.peak_is_bound = peak > point;
  plan.predicted_peak_bytes = peak;
}

// The others' shapes are not known before they come.
std::vector<StepModel> ControllerImpl::models_behind(const StepContext& context) {
  std::vector<StepModel> models;
  ForwardKind kind{this, kind_->number};
  StepContext next = context;
  next.casts_present = context.casts_present || waiting_->find_casts();
  while (next.following_forwards-- > 0) {
    if (const Follower* const follower = waiting_->follower(kind)) {
      kind = follower->kind;
      next.shape = follower->shape;
    }
    Result<StepModel> model = kind.owner->model_at(kind.number, next);
    if (!model) return {};
    models.push_back(std::move(*model));
  }
  return models;
}

Result<StepModel> ControllerImpl::model_at(std::uint8_t kind, const StepContext& context) const {
  if (kind >= kinds_.size()) return Error{ErrorCode::kUnavailable, "no such kind of step"};
  return model_of(kinds_[kind], context);
}

bool ControllerImpl::is_followed(const StepKind& kind) const {
  const auto owner = const_cast<ControllerImpl*>(this);
  return waiting_->follower({owner, kind.number}) != nullptr;
}

// The last of several forwards: its backward goes on to layers of another kind of step, which were
// recorded and of which no other step shows one.
bool ControllerImpl::shows_others(const StepContext& context) const {
  if (context.following_forwards > 0) return false;
  return std::ranges::any_of(waiting_->ran(), [this](const WaitingForwards::Ran& ran) {
    const bool is_own = ran.kind.owner == this && ran.kind.number == kind_->number;
    return ran.recorded && !is_own && waiting_->may_be_shown(ran.kind);
  });
}

// Of the step that has ended, and of those before it that its backward came to.
void ControllerImpl::take_waited(const StepOutcome& outcome) {
  const ForwardKind own{this, kind_->number};
  for (const WaitedForward& waited : outcome.waited) {
    const auto& all = waiting_->ran();
    const auto ran = std::ranges::find(all, waited.context.step, &WaitingForwards::Ran::step);
    // Another one of its own kind told more of itself.
    if (ran == all.end() || ran->kind == own) continue;
    ran->kind.owner->learn_waited(ran->kind.number, waited);
  }
  const bool recorded = !outcome.segments.empty();
  for (const WaitingForwards::Ran& ran : waiting_->ran()) {
    if (!recorded || !ran.recorded || outcome.waits || ran.kind == own) continue;
    const auto is_it = [&](const WaitedForward& one) { return one.context.step == ran.step; };
    waiting_->note_shown(ran.kind, std::ranges::any_of(outcome.waited, is_it));
  }
  waiting_->ended({outcome.context.step, own, recorded}, outcome.context, outcome.waits);
}

void ControllerImpl::learn_waited(std::uint8_t kind_number, const WaitedForward& waited) {
  if (broken_ || kind_number >= kinds_.size()) return;
  StepKind& kind = kinds_[kind_number];
  if (kind.passing) return;
  try {
    StepOutcome outcome;
    outcome.context = waited.context;
    outcome.plan = waited.plan;
    outcome.forwards = waited.forwards;
    outcome.segments = waited.segments;
    learn_first_apart(outcome);
    const std::uint64_t version = learner_.version();
    learner_.observe(placed(outcome, kind),
                     kind.doubtful_steps > 0 ? options_.warmup_fit_error : 0);
    if (learner_.version() != version) predictions_changed(step_);
  } catch (const std::exception& failure) {
    stand_down(failure.what());  // it is not the caller's
  }
}

StepDecision ControllerImpl::plan_shared(const StepContext& context, const StepModel& model) {
  std::vector<StepModel> forwards = models_behind(context);
  // What is not known of those is taken to be as this one is.
  if (forwards.empty())
    forwards.assign(static_cast<std::size_t>(context.following_forwards), model);
  LayerClasses behind;
  for (const StepModel& forward : forwards) behind.merge(classes_of(forward.point));
  forwards.insert(forwards.begin(), model);
  StepModel together = followed(forwards);
  BuiltPlan built = built_plan(*kind_, context, together, {});
  if (!built.plan.feasible && context.waiting_forwards > 0) {
    // What returns once this forward has is what those that wait hold. Most of it can be revoked
    // before; for the rest this forward's own layers are.
    together.point.returning_bytes = together.upper.returning_bytes = 0;
    built = built_plan(*kind_, context, together, {});
  }
  const bool doubted = claims_.doubts(kind_->structure, built.plan);
  if (doubted) built.plan.joined.clear();
  const bool record =
      wants_record(context, model, is_certain(together, built)) || doubted || shows_others(context);
  if (may_teach(context, model, built.plan)) note_wanted(context, together, built.plan);
  take_first(built, model.upper, context);
  predict_shared(context, model, behind, built);
  ++counters_.plans_made;
  const bool taught = context.following_forwards == 0 && may_teach(context, model, built.plan) &&
                      measure_beside(context, model, built, {});
  const Pending pending{0, !taught && built.plan.predicts_peak(), false};
  return publish(std::move(built.plan), pending, record || taught);
}

}  // namespace pudica
