// The controller's learning steps, and the modes that planned steps measure.
#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "controller/controller_impl.h"
#include "controller/learning_plan.h"
#include "controller/menu_lessons.h"

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

// Not before some step's budget was short: selective modes are of no use until then. Such a step is
// not judged: its peak is a bound.
bool ControllerImpl::take_lessons(const StepContext& context, const StepModel& model,
                                  BuiltPlan& built) {
  Plan& plan = built.plan;
  short_of_room_ = short_of_room_ || !plan.feasible || plan.predicted_extra_seconds > 0;
  if (!short_of_room_ || model.unknown.empty() || kind_->menu_steps >= kMostMenuSteps) return false;
  if (!plan.feasible || context.budget_bytes <= Bytes(0)) return false;
  if (claims_.doubts_basis(kind_->structure, Mode::keep())) return false;
  const std::int64_t room = (room_.available() - context.base_bytes).count();
  const MenuLessons taught = lessons_within(model, built.choice, plan.joined, room);
  if (taught.lessons.empty()) return false;
  ++kind_->menu_steps;
  for (const MenuLesson& lesson : taught.lessons) {
    plan.modes[lesson.layer] = lesson.mode;
    plan.forward_need_bytes[lesson.layer] = lesson.forward_peak_bytes;
    plan.backward_need_bytes[lesson.layer] = lesson.backward_peak_bytes;
  }
  plan.predicted_peak_bytes = context.base_bytes + Bytes(taught.peak_bytes);
  plan.peak_is_bound = true;
  plan.revocable = true;
  plan.reason += "; " + measured_in_words(taught.lessons);
  return true;
}

StepDecision ControllerImpl::teach_step(const StepContext& context,
                                        const Result<StepModel>& model) {
  ++kind_->learning_steps;
  if (!kind_->structure.menus.empty() || on_menu(Mode::Kind::kOffload)) ++kind_->menu_steps;
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
