// The controller: from a step's context to its plan.
#include "pudica/controller.h"

#include <algorithm>
#include <bit>
#include <exception>
#include <utility>

#include "base/layer_order.h"
#include "base/log.h"
#include "controller/controller_impl.h"
#include "controller/learning_plan.h"

namespace pudica {
namespace {

// Recorded steps that tell the times of several lengths apart.
constexpr std::int64_t kTimeSamplesPerLength = 4;

// Steps recorded all the same while a certain prediction is not exact: they tell rounding, which
// stays, from samples of a past that is over.
constexpr std::int64_t kMostCuriousWhenCertain = 8;

// A dimension this much larger than in any step that ran is far beyond them.
constexpr double kFarBeyond = 1.25;
// Learning steps after which one that was revoked does without the kept calls that it did not get.
constexpr std::int64_t kPatientSteps = 6;
// Recorded steps in a row whose backward could not be cut into layers.
constexpr std::int64_t kMostUnmeasured = 4;
// Steps without a plan after which the next one is recorded, and every time twice as many.
constexpr std::int64_t kFirstRetry = 8;
// Plans that were measured not to fit, for one that does.
constexpr int kMostPassedOver = 5;

}  // namespace

ControllerImpl::ControllerImpl(const ControllerOptions& options)
    : options_(options),
      planner_(make_planner(options.planner)),
      learner_(options.predictor),
      kinds_([this](std::uint8_t number) { return make_kind(number); }),
      kind_(&kinds_[0]),
      told_(kind_),
      room_(options.margin_revocation_rate) {
  phase_.reason = "no step was seen yet";
}

std::unique_ptr<StepKind> ControllerImpl::make_kind(std::uint8_t number) const {
  return std::make_unique<StepKind>(number, PlanStore(options_.cache, options_.ample_fraction),
                                    options_.warmup_fit_error);
}

StepDecision ControllerImpl::begin_step(const StepContext& context) {
  StepDecision decision = contained(context, [&] {
    begin_context(context);
    return decide(context);
  });
  decision.may_change = kinds_.size() > 1;
  return decision;
}

std::optional<StepDecision> ControllerImpl::replan(const StepContext& context,
                                                   std::uint16_t first_class) {
  StepKind* const kind = kinds_.of_first(first_class);
  if (broken_ || kind == kind_ || (kind == nullptr && kind_->structure.layers.empty())) {
    return std::nullopt;
  }
  return contained(context, [&] {
    kind_ = kind != nullptr ? kind : &fresh_kind();
    return decide(context);
  });
}

StepDecision ControllerImpl::contained(const StepContext& context,
                                       const std::function<StepDecision()>& decide) {
  try {
    StepDecision decision = decide();
    planned_kind_ = kind_->number;
    if (!is_restless()) return decision;
    return without_prediction(std::move(decision), "the layers of the latest steps differ");
  } catch (const std::exception& failure) {
    stand_down(failure.what());
    return fallback_step(context);
  }
}

// Once a step, whatever kind it turns out to be of.
void ControllerImpl::begin_context(const StepContext& given) {
  ++step_;
  ++counters_.steps;
  kind_ = &kinds_.expected(given.shape);
  if (broken_) return;
  StepContext context = given;
  room_.told(context.budget_bytes);
  context.budget_bytes = room_.budget();
  base_.begin_step(context, step_);
  if (claims_.begin_step()) room_.margin.reset();  // the errors of another process
  const std::uint64_t version = learner_.version();
  learner_.settle(context);
  if (learner_.version() != version) predictions_changed(step_ - 1);
  settle_room();
}

StepDecision ControllerImpl::decide(const StepContext& given) {
  if (broken_) return fallback_step(given);
  StepContext context = given;
  context.budget_bytes = room_.budget();
  if (!kind_->relearning && !context.shares_backward()) {
    if (const CachedPlan* entry = kind_->plans.find(context, step_)) {
      return publish_hit(*entry, context);
    }
  }
  const Result<StepModel> model =
      claims_.contradicted()
          ? Error{ErrorCode::kUnavailable, "the latest step was not what the learned state says"}
          : model_of(*kind_, context);
  PhaseInputs inputs;
  inputs.structure_known = !kind_->structure.layers.empty();
  inputs.relearning = kind_->relearning;
  inputs.costs_known = model.has_value();
  const LearningRequest menus{context.gradients_present, options_.menu, {}, default_mode()};
  // With `keep` and `full` steps are planned already; selective modes are learned beside that.
  const bool menus_known = (on_menu(Mode::Kind::kKeep) && on_menu(Mode::Kind::kFull)) ||
                           kind_->menu_steps >= kMostMenuSteps ||
                           !lacks_menu_modes(learner_, kind_->structure, menus);
  inputs.unmeasurable = kind_->unmeasured_steps >= kMostUnmeasured;
  inputs.fit = model.has_value() && model->fit && menus_known;
  if (model && !menus_known) inputs.unknown = "selective modes are being measured";
  inputs.recorded_steps = kind_->recorded_steps;
  inputs.learning_steps = kind_->learning_steps;
  if (!model) inputs.unknown = model.error().message;
  phase_ = next_phase(inputs, options_);
  switch (phase_.state) {
    case ControllerState::kPlanning:
      kind_->relearning = false;
      return context.shares_backward() ? plan_shared(context, *model) : plan_step(context, *model);
    case ControllerState::kLearning:
      return teach_step(context, model);
    case ControllerState::kStandingDown:
      break;
  }
  return fallback_step(context);
}

void ControllerImpl::predictions_changed(std::uint64_t step) {
  for (const auto& kind : kinds_) kind->plans.predictions_changed(step);
}

void ControllerImpl::times_changed() {
  for (const auto& kind : kinds_) kind->plans.times_changed(step_);
}

void ControllerImpl::clear_plans() {
  for (const auto& kind : kinds_) kind->plans.clear();
}

void ControllerImpl::settle_room() {
  const auto change = room_.settle();
  if (!change) return;
  if (change->forget) clear_plans();
  if (change->shrink) {
    for (const auto& kind : kinds_) kind->plans.available_changed(*change->shrink);
  }
  regions_.clear();
}

StepDecision ControllerImpl::publish_hit(const CachedPlan& entry, const StepContext& context) {
  if (phase_.state != ControllerState::kPlanning) {
    phase_ = {ControllerState::kPlanning, "every segment is learned"};
  }
  pending_ = {entry.plan->id, true, true};
  if (!entry.plan->feasible) ++counters_.infeasible_steps;
  StepDecision decision{entry.plan, false};
  const Bytes predicted = PlanStore::predicted_peak(entry, context);
  if (predicted != entry.plan->predicted_peak_bytes) {
    Plan plan = *entry.plan;
    plan.predicted_peak_bytes = predicted;
    decision.plan = std::make_shared<const Plan>(std::move(plan));
  }
  if (!kind_->to_record.empty() && kind_->to_record.contains(context.shape)) {
    decision.record = true;
  }
  return decision;
}

StepDecision ControllerImpl::plan_step(const StepContext& context, const StepModel& model) {
  BuiltPlan built = built_plan(*kind_, context, model, kind_->plans.warm_choice(context));
  const bool certain = is_certain(model, built);
  if (claims_.doubts(kind_->structure, built.plan)) {
    return try_claims(std::move(built), model, context, certain);
  }
  if (!built.plan.joined.empty() && claims_.doubts_basis(kind_->structure, Mode::keep())) {
    return teach_step(context, Error{ErrorCode::kUnavailable, "no layer was kept here yet"});
  }
  CachedPlan entry = cached_plan(context, model, built);
  ++counters_.plans_made;
  if (!built.plan.feasible) ++counters_.infeasible_steps;
  const bool record = wants_record(context, model, certain);
  if (take_lessons(context, model, built)) return publish(std::move(built.plan), {}, true);
  StepDecision decision = publish(std::move(built.plan), {0, true, certain}, record);
  entry.plan = decision.plan;
  if (base_.coming_state() == Bytes(0))
    kind_->plans.insert(context, std::move(entry), step_);  // else of once
  return decision;
}

// In a planning step: a shape to be looked at again, or a model that is not exact yet.
bool ControllerImpl::wants_record(const StepContext& context, const StepModel& model,
                                  bool certain) {
  // Bytes are known from two shapes; times of several lengths need a few more to come apart.
  const auto lengths = static_cast<std::int64_t>(context.shape.size()) - 1;
  const bool times_thin = lengths > 1 && kind_->recorded_steps < kTimeSamplesPerLength * lengths;
  const bool exact = model.identified && model.fit;
  const std::int64_t most_curious =
      certain && !times_thin ? std::min(kMostCuriousWhenCertain, options_.warmup_max_steps)
                             : options_.warmup_max_steps;
  if ((!exact || times_thin) && kind_->curious_steps < most_curious) {
    ++kind_->curious_steps;
    return true;
  }
  return kind_->to_record.contains(context.shape);
}

CachedPlan ControllerImpl::cached_plan(const StepContext& context, const StepModel& model,
                                       const BuiltPlan& built) const {
  const StepPeaks point = step_peaks(model.point, built.choice, built.plan.joined);
  const StepPeaks upper = step_peaks(model.upper, built.choice, built.plan.joined);
  const Bytes until_return = Bytes(upper.until_return_bytes) + context.returning_bytes;
  const std::optional<std::int64_t>& measured = built.measured_bytes;
  const Bytes planned = measured ? Bytes(*measured) : std::max(Bytes(upper.bytes), until_return);
  CachedPlan entry;
  entry.choice = built.choice;
  entry.predicted_peak_bytes = built.plan.predicted_peak_bytes;
  entry.slack_bytes = std::max(Bytes(0), room_.available() - context.base_bytes - planned);
  entry.base_bytes = context.base_bytes;
  entry.returning_bytes = context.returning_bytes;
  entry.until_return_bytes = Bytes(point.until_return_bytes);
  if (measured) {
    entry.until_return_bytes =
        std::min(entry.until_return_bytes, Bytes(*measured) - context.returning_bytes);
  }
  entry.whole_bytes = Bytes(measured.value_or(point.bytes));
  entry.until_return_room_bytes = std::max(Bytes(0), planned - until_return);
  return entry;
}

BuiltPlan ControllerImpl::built_plan(const StepKind& kind, const StepContext& context,
                                     const StepModel& model,
                                     std::span<const std::uint8_t> warm) const {
  const StepCosts& costs = model.upper;  // equal to the point estimate where the data identify it
  bool usable = warm.size() == costs.layers.size();
  for (std::size_t i = 0; usable && i < warm.size(); ++i) {
    usable = warm[i] < costs.layers[i].modes.size();
  }
  PlanRequest request;
  request.context = context;
  request.margin_bytes = room_.held_back(context.budget_bytes);
  request.ample_fraction = options_.ample_fraction;
  request.keep_all_bytes = keep_all_peak(kind, context, model);
  BuiltPlan built =
      best_plan(kind, request, model, usable ? warm : std::span<const std::uint8_t>{});
  const std::int64_t point = step_peak_bytes(model.point, built.choice, built.plan.joined);
  built.plan.predicted_peak_bytes =
      context.base_bytes + Bytes(built.measured_bytes.value_or(point));
  // A prediction far beyond all that ran may be wrong however well it fits: then what is kept must
  // be there to be given back.
  if (context.budget_bytes > Bytes(0) && !is_covered(context.shape)) built.plan.revocable = true;
  built.plan.revocable_until_held = context.budget_bytes > Bytes(0);
  if (is_certain(model, built)) return built;
  built.plan.revocable = true;
  built.plan.reason += "; planned on upper bounds: no shape like this one was measured";
  return built;
}

// The best of the plans that are not known to need more than there is: where the one chosen is, the
// next best, and after some of them one that leaves room for as much as the model was wrong by.
BuiltPlan ControllerImpl::best_plan(const StepKind& kind, PlanRequest request,
                                    const StepModel& model,
                                    std::span<const std::uint8_t> warm) const {
  const StepContext& context = request.context;
  const StepCosts& costs = model.upper;
  const std::int64_t room =
      (context.budget_bytes - context.base_bytes - request.margin_bytes).count();
  const auto likely_peak = [&](const BuiltPlan& one) {
    const std::int64_t predicted = step_peak_bytes(model.point, one.choice, one.plan.joined);
    const std::int64_t least = kind.known_peaks.least(context, one.plan);
    return kind.known_peaks.peak(context, one.plan).value_or(std::max(predicted, least));
  };
  BuiltPlan built;
  int passed_over = 0;
  for (int attempt = 0; attempt <= kMostPassedOver; ++attempt) {
    BuiltPlan next = build_plan(*planner_, costs, request, warm);
    const bool beyond = kind.known_peaks.least(context, next.plan) > room;
    if (!next.plan.feasible || beyond) tighten(next, costs, model.point, request, likely_peak);
    const bool other = next.choice != built.choice || next.plan.joined != built.plan.joined;
    if (attempt > 0 && other) ++passed_over;
    built = std::move(next);
    built.measured_bytes = kind.known_peaks.peak(context, built.plan);
    const std::int64_t least = kind.known_peaks.least(context, built.plan);
    if (context.budget_bytes <= Bytes(0) || !built.plan.feasible || least <= room) break;
    const std::int64_t planned = step_peak_bytes(costs, built.choice, built.plan.joined);
    const bool last = attempt + 1 == kMostPassedOver;
    request.most_bytes = last ? room - std::max<std::int64_t>(1, least - planned) : planned - 1;
  }
  if (passed_over > 0) {
    built.plan.reason += "; passed over: " + std::to_string(passed_over) +
                         (passed_over == 1 ? " plan that was" : " plans that were") +
                         " measured not to fit";
  }
  if (!built.measured_bytes) return built;
  const Bytes peak = context.base_bytes + Bytes(*built.measured_bytes);
  const double ample = request.ample_fraction * static_cast<double>(context.budget_bytes.count());
  if (context.budget_bytes > Bytes(0)) {
    built.plan.feasible = built.plan.feasible && peak <= context.budget_bytes;
    built.plan.revocable = built.plan.revocable || static_cast<double>(peak.count()) > ample;
  }
  built.plan.reason += "; measured before: " + format_bytes(peak);
  return built;
}

Bytes ControllerImpl::keep_all_peak(const StepKind& kind, const StepContext& context,
                                    const StepModel& model) const {
  Plan plan;
  const std::vector<std::uint8_t> choice = fastest_choice(model.upper);
  for (std::size_t i = 0; i < choice.size(); ++i) {
    plan.modes.push_back(model.upper.layers[i].modes[choice[i]].mode);
  }
  const auto measured = kind.known_peaks.peak(context, plan);
  return context.base_bytes + Bytes(measured.value_or(step_peak_bytes(model.point, choice)));
}

bool ControllerImpl::awaits_modes(const StepKind& kind, const StepModel& model) const {
  if (!model.unknown.empty()) return true;
  if (!on_menu(Mode::Kind::kSelective)) return false;
  return std::ranges::any_of(kind.structure.layers, [&kind](const StepStructure::Layer& layer) {
    return layer.layer_class >= kind.structure.menus.size() ||
           kind.structure.menus[layer.layer_class].id == 0;
  });
}

bool ControllerImpl::is_covered(const ShapeKey& shape) const {
  if (largest_.size() != shape.size()) return false;
  for (std::size_t i = 0; i < largest_.size(); ++i) {
    if (static_cast<double>(shape[i]) > kFarBeyond * static_cast<double>(largest_[i])) return false;
  }
  return true;
}

StepDecision ControllerImpl::fallback_step(const StepContext& context) {
  Plan plan;
  plan.shape = context.shape;
  const bool tight = on_menu(Mode::Kind::kFull) &&
                     kind_->tight_shapes.contains(context.shape, context.budget_bytes);
  plan.default_mode = tight ? Mode::full() : Mode::keep();
  plan.modes.assign(kind_->structure.layers.size(), plan.default_mode);
  plan.reason = "standing down: " + phase_.reason +
                (tight ? "; everything recomputed, since most was revoked at such a shape"
                       : "; everything kept, revoked at the budget");
  // A run may come to steps that can be measured: looked for ever more seldom.
  const bool retry = !broken_ && kind_->unmeasured_steps > 0 &&
                     kind_->unplanned_steps >= kFirstRetry &&
                     std::has_single_bit(static_cast<std::uint64_t>(kind_->unplanned_steps));
  return publish(std::move(plan), {}, retry);
}

StepDecision ControllerImpl::publish(Plan plan, Pending pending, bool record) {
  plan.id = next_plan_id_++;
  pending.plan_id = plan.id;
  pending_ = pending;
  if (record && plan.predicted_peak_bytes == Bytes(0)) ++counters_.learning_steps;
  if (plan.modes.size() == kind_->structure.layers.size())
    plan.layer_classes = order_of(kind_->structure);
  return {std::make_shared<const Plan>(std::move(plan)), record};
}

Result<StepModel> ControllerImpl::model_of(const StepKind& kind, const StepContext& context) const {
  CostsRequest request;
  request.shape = context.shape;
  request.step_kind = kind.number;
  request.gradients_present = context.gradients_present;
  request.returning_bytes = context.returning_bytes.count();
  request.state_bytes = base_.coming_state().count();
  request.menu = options_.menu;
  request.host_bytes = options_.host_bytes;
  request.lenient = kind.learning_steps >= options_.warmup_max_steps;
  request.withholds = [this](std::uint16_t layer_class, Mode mode) {
    return claims_.doubts_class(layer_class, mode);
  };
  request.derives_kept = kind.learning_was_revoked && kind.learning_steps >= kPatientSteps;
  return learner_.costs(kind.structure, request);
}

bool ControllerImpl::on_menu(Mode::Kind kind) const { return is_on_menu(options_.menu, kind); }

void ControllerImpl::stand_down(const std::string& reason) {
  broken_ = true;
  phase_ = {ControllerState::kStandingDown, reason};
  log_warn("standing down: " + reason);
}

std::unique_ptr<Controller> make_controller(const ControllerOptions& options) {
  return std::make_unique<ControllerImpl>(options);
}

}  // namespace pudica
