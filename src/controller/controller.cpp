// The controller: from a step's context to its plan.
#include "pudica/controller.h"

#include <algorithm>
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
// stays, from samples of a past that is over. Each peak that was another than predicted asks for
// one more: what is not known yet matters.
constexpr std::int64_t kMostCuriousWhenCertain = 8;

// Learning steps after which one that was revoked does without the kept calls that it did not get.
constexpr std::int64_t kPatientSteps = 6;

}  // namespace

ControllerImpl::ControllerImpl(const ControllerOptions& options)
    : options_(options),
      planner_(make_planner(options.planner)),
      learner_(options.predictor),
      kinds_([this](std::uint8_t number) { return make_kind(number); }),
      kind_(&kinds_[0]),
      told_(kind_),
      room_(options.margin_revocation_rate),
      waiting_(options.waiting ? options.waiting : make_waiting_forwards()) {
  phase_.reason = "no step was seen yet";
}

ControllerImpl::~ControllerImpl() { waiting_->forget(this); }

std::unique_ptr<StepKind> ControllerImpl::make_kind(std::uint8_t number) const {
  return std::make_unique<StepKind>(number, PlanStore(options_.cache, options_.ample_fraction),
                                    options_.warmup_fit_error, options_.predictor);
}

StepDecision ControllerImpl::begin_step(const StepContext& context) {
  StepDecision decision = contained(context, [&] {
    begin_context(context);
    return decide(context);
  });
  decision.may_change = kinds_.begin_differently();
  return decision;
}

std::optional<StepDecision> ControllerImpl::replan(const StepContext& context,
                                                   std::uint16_t first_class) {
  StepKind* const kind = kinds_.of_first(first_class, context.shape);
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
    if (is_restless()) {
      return kind_->settled
                 ? revocably(std::move(decision), "the layers of a step changed lately")
                 : without_prediction(std::move(decision), "the layers of the latest steps differ");
    }
    if (!kinds_.is_torn(context.shape)) return decision;
    return revocably(std::move(decision), "steps of this shape run other layers now and then");
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
  waiting_->begin(context);
  if (claims_.begin_step()) room_.margin.reset();  // the errors of another process
  const std::uint64_t version = learner_.version();
  learner_.settle(context, waiting_->first_base_bytes());
  if (learner_.version() != version) predictions_changed(step_ - 1);
  settle_room();
}

StepDecision ControllerImpl::decide(const StepContext& given) {
  if (broken_) return fallback_step(given);
  StepContext context = given;
  context.budget_bytes = room_.budget();
  waiting_->plan_no_more();
  const bool plans = !kind_->relearning && !kind_->repeated_backwards.are_usual();
  if (plans && !context.shares_backward()) {
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
                           kind_->menu.steps >= kMostMenuSteps ||
                           !lacks_menu_modes(learner_, kind_->structure, menus);
  inputs.unmeasurable = kind_->repeated_backwards.are_usual();
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
  const Bytes spared = spared_bytes(context, *entry.plan);
  if (predicted != entry.plan->predicted_peak_bytes || spared != entry.plan->spared_bytes) {
    Plan plan = *entry.plan;
    plan.predicted_peak_bytes = predicted;
    plan.spared_bytes = spared;
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
  const bool teaches = may_teach(context, model, built.plan) && measure_menu(context, model, built);
  if (teaches) return publish(std::move(built.plan), {}, true);
  built.plan.spared_bytes = spared_bytes(context, built.plan);
  // A restored state has seen more than this process.
  const bool is_new = kind_->measured.wants(context.shape) ||
                      (runs_selective(built.plan) && kind_->menu.grows_to(context.shape));
  StepDecision decision =
      publish(std::move(built.plan), {0, true, certain}, record || (is_new && !claims_.are_made()));
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
  const bool waits = context.following_forwards > 0;
  const bool exact = model.identified && model.fit && (!waits || model.may_wait);
  const std::int64_t most_curious =
      certain && !times_thin
          ? std::min(kMostCuriousWhenCertain + kind_->inexact_steps, options_.warmup_max_steps)
          : options_.warmup_max_steps;
  if ((!exact || times_thin) && kind_->curious_steps < most_curious) {
    ++kind_->curious_steps;
    return true;
  }
  return kind_->to_record.contains(context.shape);
}

StepDecision ControllerImpl::fallback_step(const StepContext& context) {
  if (!std::exchange(kind_->told_stand_down, true) && !broken_) {
    log_warn("steps of one kind are not planned: " + phase_.reason +
             "; layers are kept while there is room, and given back where the budget is short");
  }
  Plan plan;
  plan.shape = context.shape;
  const bool tight = on_menu(Mode::Kind::kFull) &&
                     kind_->tight_shapes.contains(context.shape, context.budget_bytes);
  plan.default_mode = tight ? Mode::full() : Mode::keep();
  plan.modes.assign(kind_->structure.layers.size(), plan.default_mode);
  plan.reason = "standing down: " + phase_.reason +
                (tight ? "; everything recomputed, since most was revoked at such a shape"
                       : "; everything kept, revoked at the budget");
  return publish(std::move(plan), {}, /*record=*/false);
}

StepDecision ControllerImpl::publish(Plan plan, Pending pending, bool record) {
  plan.id = next_plan_id_++;
  if (room_.budget() > Bytes(0) && on_menu(Mode::Kind::kFull)) plan.strange_mode = Mode::full();
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
  request.casts_present = context.casts_present;
  request.waits = context.following_forwards > 0 || is_followed(kind);
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
