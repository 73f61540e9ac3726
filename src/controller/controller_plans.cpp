// The controller's plans: the best that is not known to need more than there is, and what is cached
// of it.
#include <algorithm>
#include <utility>

#include "controller/controller_impl.h"

namespace pudica {
namespace {

// A dimension this much larger than in any step that ran is far beyond them.
constexpr double kFarBeyond = 1.25;
// Plans that were measured not to fit, for one that does.
constexpr int kMostPassedOver = 5;

}  // namespace

bool tells_little(Bytes point, Bytes upper) {
  constexpr std::int64_t kTellingShare = 20;
  return upper - point > Bytes(point.count() / kTellingShare);
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
  BuiltPlan built = best_plan(kind, request_of(kind, context, model), model,
                              usable ? warm : std::span<const std::uint8_t>{});
  const std::int64_t point = step_peak_bytes(model.point, built.choice, built.plan.joined);
  built.plan.predicted_peak_bytes =
      context.base_bytes + Bytes(built.measured_bytes.value_or(point));
  // A prediction far beyond all that ran may be wrong however well it fits: then what is kept must
  // be there to be given back.
  if (context.budget_bytes > Bytes(0) && !is_covered(context.shape)) built.plan.revocable = true;
  built.plan.revocable_until_held = context.budget_bytes > Bytes(0);
  if (is_certain(model, built)) return built;
  const std::int64_t upper = step_peak_bytes(model.upper, built.choice, built.plan.joined);
  if (!built.measured_bytes && tells_little(Bytes(point), Bytes(upper))) {
    built.plan.predicted_peak_bytes = context.base_bytes + Bytes(upper);
    built.plan.peak_is_bound = true;
  }
  built.plan.revocable = true;
  built.plan.reason += "; planned on upper bounds: no shape like this one was measured";
  return built;
}

PlanRequest ControllerImpl::request_of(const StepKind& kind, const StepContext& context,
                                       const StepModel& model) const {
  PlanRequest request;
  request.context = context;
  request.margin_bytes = room_.held_back(context.budget_bytes);
  request.ample_fraction = options_.ample_fraction;
  request.keep_all_bytes = keep_all_peak(kind, context, model);
  return request;
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

// Where a peak was measured to be another than the model says, what is predicted is that peak.
bool ControllerImpl::may_be_spared(const StepContext& context, const Plan& plan) const {
  return !plan.revocable && plan.predicts_peak() && !context.shares_backward() &&
         !kind_->known_peaks.peak(context, plan);
}

Bytes ControllerImpl::spared_bytes(const StepContext& context, const Plan& plan) const {
  return may_be_spared(context, plan) ? kind_->spared.of(context, plan) : Bytes(0);
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

bool ControllerImpl::awaits_modes(const StepKind& kind, const StepContext& context,
                                  const StepModel& model, const Plan& plan) const {
  if (plan.predicted_extra_seconds <= 0) return false;
  if (std::ranges::any_of(model.unknown, MenuCourse::is_open)) return true;
  if (hoped_for(kind, context, model, plan)) return true;
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

}  // namespace pudica
