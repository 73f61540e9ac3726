// The controller's learning steps, and the modes that planned steps measure.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/controller_impl.h"
#include "controller/learning_plan.h"

namespace pudica {
namespace {

std::string measured_in_words(const std::vector<MenuLesson>& lessons) {
  const auto offloads = std::ranges::count(lessons, Mode::offload(), &MenuLesson::mode);
  const auto layers = static_cast<std::ptrdiff_t>(lessons.size());
  const std::string what = offloads == layers ? "offload"
                           : offloads == 0    ? "selective modes"
                                              : "selective modes and offload";
  return what + " measured in " + std::to_string(layers) + (layers == 1 ? " layer" : " layers");
}

}  // namespace

// Not before some step's budget was short: selective modes are of no use until then.
bool ControllerImpl::may_teach(const StepContext& context, const StepModel& model,
                               const Plan& plan) {
  short_of_room_ = short_of_room_ || !plan.feasible || plan.predicted_extra_seconds > 0;
  if (!short_of_room_ || model.unknown.empty()) return false;
  if (kind_->menu.steps >= kMostMenuSteps && kind_->menu.promised_steps >= kMostPromisedSteps) {
    return false;
  }
  if (!plan.feasible || context.budget_bytes <= Bytes(0)) return false;
  return !claims_.doubts_basis(kind_->structure, Mode::keep());
}

// Such steps are not judged: their peak is a bound.
void ControllerImpl::measure_in(Plan& plan, Bytes most, const std::vector<MenuLesson>& lessons) {
  for (const MenuLesson& lesson : lessons) {
    plan.modes[lesson.layer] = lesson.mode;
    plan.forward_need_bytes[lesson.layer] = lesson.forward_peak_bytes;
    plan.backward_need_bytes[lesson.layer] = lesson.backward_peak_bytes;
  }
  plan.predicted_peak_bytes = most;
  plan.peak_is_bound = true;
  plan.revocable = true;
  plan.reason += "; " + measured_in_words(lessons);
}

// What a menu promises is worth a plan where that is cheaper than what is known, though its modes
// needed all that they may: they are measured where they are wanted, and beside them what the plan
// would want if they needed no more than is promised.
bool ControllerImpl::measure_menu(const StepContext& context, const StepModel& model,
                                  BuiltPlan& built) {
  const bool is_short = built.plan.predicted_extra_seconds > 0;
  const bool may_help = is_short && note_wanted(context, model, built.plan);
  if (may_help && kind_->menu.promised_steps < kMostPromisedSteps) {
    std::vector<MenuLesson> lessons = plan_on_promises(context, model, built);
    if (!lessons.empty()) {
      ++kind_->menu.promised_steps;
      StepModel asked = model;
      asked.upper = with_unknown_modes(model);
      return measure_beside(context, std::move(asked), built, std::move(lessons));
    }
  }
  return measure_beside(context, model, built, {});
}

// The plan if unknown modes needed no more than is promised, where that is cheaper.
std::optional<BuiltPlan> ControllerImpl::hoped_for(const StepKind& kind, const StepContext& context,
                                                   const StepModel& model, const Plan& plan) const {
  if (plan.predicted_extra_seconds <= 0 || model.unknown.empty()) return std::nullopt;
  BuiltPlan best = build_plan(*planner_, with_unknown_modes(model, Reckoning::kAsPromised),
                              request_of(kind, context, model), {});
  const bool is_better = best.layers_fit && best.plan.feasible &&
                         best.plan.predicted_extra_seconds < plan.predicted_extra_seconds;
  return is_better ? std::optional(std::move(best)) : std::nullopt;
}

// True where the plan could be cheaper. Where nothing new is wanted it is asked ever more seldom.
bool ControllerImpl::note_wanted(const StepContext& context, const StepModel& model,
                                 const Plan& plan) {
  MenuCourse& menu = kind_->menu;
  const auto asks = static_cast<std::uint64_t>(++menu.idle_asks);
  if (menu.idle_asks > kMostIdleAsks && !std::has_single_bit(asks)) return false;
  const std::optional<BuiltPlan> best = hoped_for(*kind_, context, model, plan);
  if (!best) return false;
  for (std::size_t i = 0; i < best->choice.size(); ++i) {
    const LayerCosts& layer = model.upper.layers[i];
    if (best->choice[i] < layer.modes.size()) continue;
    if (menu.wanted.emplace(layer.layer_class, best->plan.modes[i]).second) menu.idle_asks = 0;
  }
  return true;
}

// The layers that measure what `built`, now a plan on promises, rests on. Empty: left as it was.
std::vector<MenuLesson> ControllerImpl::plan_on_promises(const StepContext& context,
                                                         const StepModel& model, BuiltPlan& built) {
  BuiltPlan other =
      build_plan(*planner_, with_unknown_modes(model), request_of(*kind_, context, model), {});
  if (!other.layers_fit || !other.plan.feasible) return {};
  if (other.plan.predicted_extra_seconds >= built.plan.predicted_extra_seconds) return {};
  const std::int64_t room = (room_.available() - context.base_bytes).count();
  if (kind_->known_peaks.least(context, other.plan) > room) return {};
  std::vector<MenuLesson> lessons;
  for (std::size_t i = 0; i < other.choice.size(); ++i) {
    if (other.choice[i] < model.upper.layers[i].modes.size()) continue;
    lessons.push_back({i, other.plan.modes[i], other.plan.forward_need_bytes[i],
                       other.plan.backward_need_bytes[i]});
  }
  if (!lessons.empty()) built = std::move(other);
  return lessons;
}

// Lessons beside what is planned, `asked` being what `built` chose from, take no more time, all
// together, than plans have lost to recomputing. Where that does not suffice yet, plans that are
// cached are asked anew once it does. A step that fits is left alone, but for what only measuring
// tells.
bool ControllerImpl::measure_beside(const StepContext& context, StepModel asked, BuiltPlan& built,
                                    std::vector<MenuLesson> lessons) {
  const bool is_short = built.plan.predicted_extra_seconds > 0;
  std::erase_if(asked.unknown, [this, is_short, &lessons](const UnknownMode& unknown) {
    const auto measures_it = [this, &unknown](const MenuLesson& lesson) {
      return lesson.mode == unknown.mode &&
             kind_->structure.layers[lesson.layer].layer_class == unknown.layer_class;
    };
    const bool is_due = MenuCourse::is_open(unknown) || (is_short && kind_->menu.wants(unknown));
    return !is_due || std::ranges::any_of(lessons, measures_it);
  });
  Bytes most = built.plan.predicted_peak_bytes;
  if (kind_->menu.steps < kMostMenuSteps) {
    const std::int64_t room = (room_.available() - context.base_bytes).count();
    const MenuLessons taught = lessons_within(asked, built.choice, built.plan.joined, room,
                                              {kind_->menu.lost_seconds, lessons});
    const double awaited = taught.awaited_seconds - taught.extra_seconds;
    kind_->menu.awaited_seconds = std::min(kind_->menu.awaited_seconds, awaited);
    if (!taught.lessons.empty()) {
      ++kind_->menu.steps;
      kind_->menu.lost_seconds -= taught.extra_seconds;
      lessons.insert(lessons.end(), taught.lessons.begin(), taught.lessons.end());
      most = context.base_bytes + Bytes(taught.peak_bytes);
    }
  }
  if (lessons.empty()) return false;
  measure_in(built.plan, most, lessons);
  return true;
}

// The plan ran.
void ControllerImpl::note_lost(const Plan& plan) {
  kind_->menu.lost_seconds += plan.predicted_extra_seconds;
  if (kind_->menu.lost_seconds < kind_->menu.awaited_seconds) return;
  kind_->menu.awaited_seconds = std::numeric_limits<double>::infinity();
  kind_->plans.clear();
}

StepDecision ControllerImpl::teach_step(const StepContext& context,
                                        const Result<StepModel>& model) {
  ++kind_->learning_steps;
  if (!kind_->structure.menus.empty() || on_menu(Mode::Kind::kOffload)) ++kind_->menu.steps;
  Plan plan;
  plan.shape = context.shape;
  plan.default_mode = default_mode();
  // Revocations disturb what is measured: with too little known to plan around them, shelter.
  const bool tight = kind_->learning_was_revoked || keeping_may_not_fit(context) ||
                     kind_->tight_shapes.contains(context.shape, context.budget_bytes);
  if (!model && tight && on_menu(Mode::Kind::kFull)) plan.default_mode = Mode::full();
  plan.reason = "learning: " + phase_.reason;
  if (kind_->structure.layers.empty()) {
    plan.teach_first_of_class = plan.default_mode == Mode::keep();
    return publish(std::move(plan), {}, true);
  }
  std::vector<Mode> planned;
  if (model && options_.warmup_mode == WarmupMode::kRevocable) {
    // Keeping all is what teaches at least cost, unless it would end in many revocations.
    BuiltPlan built = built_plan(*kind_, context, *model, {});
    if (!built.plan.joined.empty()) return teach_joined_step(std::move(built.plan));
    planned = std::move(built.plan.modes);
    // What forwards that wait hold can be revoked.
    plan.feasible = built.plan.feasible || context.waiting_forwards > 0;
    if (!plan.feasible) ++counters_.infeasible_steps;
  }
  // The rest of the menu can wait until something is known of `keep` and `full`.
  const std::vector<Mode::Kind> plain = plain_menu();
  const bool of_all = model || plain.empty();
  plan.modes = learning_modes(
      learner_, kind_->structure,
      {context.gradients_present, of_all ? options_.menu : plain, planned, plan.default_mode});
  return publish(std::move(plan), {}, true);
}

// A step that keeps what it can and gives back what it must leaves its gradients wherever there was
// room, and where the allocator caches the holes between them may be too much for the optimizer.
bool ControllerImpl::keeping_may_not_fit(const StepContext& context) const {
  return context.budget_bytes > Bytes(0) && unplanned_need_bytes_ > Bytes(0) &&
         context.base_bytes + unplanned_need_bytes_ > context.budget_bytes;
}

// Layers do not fit one by one, so no layer is taken out to be kept.
StepDecision ControllerImpl::teach_joined_step(Plan plan) {
  if (!plan.feasible) ++counters_.infeasible_steps;
  plan.predicted_peak_bytes = Bytes(0);  // of too little to be judged by
  plan.revocable = true;
  plan.reason = "learning: " + phase_.reason + "; " + plan.reason;
  return publish(std::move(plan), {}, true);
}

std::vector<Mode::Kind> ControllerImpl::plain_menu() const {
  std::vector<Mode::Kind> kinds{Mode::Kind::kKeep, Mode::Kind::kFull};
  std::erase_if(kinds, [this](Mode::Kind kind) { return !on_menu(kind); });
  return kinds;
}

Mode ControllerImpl::default_mode() const {
  if (options_.warmup_mode == WarmupMode::kSheltered) return Mode::full();
  return on_menu(Mode::Kind::kKeep) ? Mode::keep() : Mode::full();
}

}  // namespace pudica
