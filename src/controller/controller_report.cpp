// What the controller tells of itself.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <utility>

#include "controller/controller_impl.h"
#include "plan_cache/region.h"

namespace pudica {
namespace {

// New regions found in one snapshot: each takes some hundred evaluations of the peak model.
constexpr int kRegionsPerSnapshot = 8;

// The modes by their number in the costs; nullopt where one is not among them.
std::optional<std::vector<std::uint8_t>> choice_of(const StepCosts& costs,
                                                   const std::vector<Mode>& modes) {
  if (costs.layers.size() != modes.size()) return std::nullopt;
  std::vector<std::uint8_t> choice;
  for (std::size_t i = 0; i < modes.size(); ++i) {
    const auto& known = costs.layers[i].modes;
    const auto found = std::ranges::find(known, modes[i], &LayerModeCosts::mode);
    if (found == known.end()) return std::nullopt;
    choice.push_back(static_cast<std::uint8_t>(found - known.begin()));
  }
  return choice;
}

// Absolute peaks; what no plan can change is the least of them.
std::vector<FrontierPoint> absolute_frontier(const std::vector<FrontierPoint>& points,
                                             const ChainProblem& problem, Bytes base_bytes) {
  std::vector<FrontierPoint> out;
  for (const FrontierPoint& point : points) {
    const std::int64_t above =
        std::max(point.peak_bytes + problem.offset_bytes, problem.constant_bytes);
    const std::int64_t peak = base_bytes.count() + above;
    if (!out.empty() && out.back().peak_bytes == peak) out.pop_back();  // this one is faster
    out.push_back({peak, point.time_ns});
  }
  return out;
}

// Every layer `full`, none joined.
std::optional<FrontierPoint> all_full(const StepCosts& costs, Bytes base_bytes) {
  constexpr double kNanoseconds = 1e9;
  const auto choice = choice_of(costs, std::vector<Mode>(costs.layers.size(), Mode::full()));
  if (!choice) return std::nullopt;
  return FrontierPoint{base_bytes.count() + step_peak_bytes(costs, *choice),
                       std::llround(kNanoseconds * step_extra_seconds(costs, *choice))};
}

// Of the plan, by the upper bounds of what was learned; as it was measured where it ran. What is
// not determined is certain within a thousandth (is_certain), which the bound has to cover.
Bytes upper_peak(const StepContext& context, const StepModel& model, const BuiltPlan& built) {
  constexpr std::int64_t kCertainShare = 1000;
  if (built.measured_bytes) return context.base_bytes + Bytes(*built.measured_bytes);
  const std::int64_t bound = step_peak_bytes(model.upper, built.choice, built.plan.joined);
  const std::int64_t open = model.identified ? 0 : bound / kCertainShare;
  return context.base_bytes + Bytes(bound + open);
}

}  // namespace

ControllerSnapshot ControllerImpl::snapshot() const {
  ControllerSnapshot out;
  out.state = phase_.state;
  out.state_reason = phase_.reason;
  out.budget_bytes = room_.budget();
  out.margin_bytes = room_.margin_in_force();
  out.margin_fraction = room_.margin.fraction();
  const BaseBytes::Saved& base = base_.latest();
  out.base_bytes = base[base[0] ? 0 : 1].value_or(Bytes(0));
  out.structure = told_->structure;
  out.counters = counters_;
  for (const auto& kind : kinds_) {
    out.recorded_steps += kind->recorded_steps;
    out.cache_hits += kind->plans.hits();
    out.cache_misses += kind->plans.misses();
  }
  for (const bool present : {false, true}) {
    for (const auto& kind : kinds_) {
      std::vector<CachedPlan> plans;
      for (const CachedPlan* entry : kind->plans.entries(present)) plans.push_back(*entry);
      if (!present) add_regions(*kind, plans);
      std::ranges::move(plans, std::back_inserter(out.plans));
    }
  }
  out.learned = learner_.describe();
  out.recent_peaks.assign(recent_peaks_.begin(), recent_peaks_.end());
  return out;
}

// For plans without accumulation: a region holds for the step it was planned for.
void ControllerImpl::add_regions(const StepKind& kind, std::vector<CachedPlan>& plans) const {
  if (regions_version_ != learner_.version()) {
    regions_.clear();
    regions_version_ = learner_.version();
  }
  int made = 0;
  for (CachedPlan& entry : plans) {
    auto known = regions_.find(entry.plan->id);
    if (known == regions_.end()) {
      if (made >= kRegionsPerSnapshot) continue;
      ++made;
      const auto fits = [this, &kind, &entry](const ShapeKey& shape) -> std::optional<bool> {
        StepContext context = base_.context_at(shape, room_.budget());
        context.gradients_present = false;  // and no casts
        const auto model = model_of(kind, context);
        if (!model) return std::nullopt;
        const auto choice = choice_of(model->point, entry.plan->modes);
        if (!choice) return std::nullopt;
        const Bytes peak =
            entry.base_bytes + Bytes(step_peak_bytes(model->point, *choice, entry.plan->joined));
        return !room_.is_limited() || peak <= room_.available();
      };
      known = regions_.emplace(entry.plan->id, region_of(entry.plan->shape, fits)).first;
    }
    entry.fits_up_to = known->second;
  }
}

Result<ShapeEstimate> ControllerImpl::estimated(const ShapeKey& shape, Bytes budget_bytes) const {
  // What was learned is enough or is not; the phase only says whether steps are planned by it.
  const StepContext context = base_.context_at(shape, budget_bytes);
  const StepKind& kind = kinds_.expected(shape);
  const auto model = model_of(kind, context);
  if (!model) {
    return model.error().with_context("no estimate while " + to_string(phase_.state));
  }
  ShapeEstimate out;
  out.shape = shape;
  out.identified = model->identified;
  out.base_bytes = context.base_bytes;
  out.gradients_present = context.gradients_present;
  out.margin_bytes = room_.held_back(budget_bytes);
  ChainProblem problem = to_chain(model->point);
  add_joints(model->point, &problem);
  out.returning_bytes = context.returning_bytes;
  out.keep_all_peak_bytes = keep_all_peak(kind, context, *model);
  const ChainPlan floor = floor_plan(problem.chain);
  out.floor_peak_bytes =
      context.base_bytes + Bytes(step_peak_bytes(model->point, floor.choice, floor.joined));
  const BuiltPlan built = built_plan(kind, context, *model, {});
  out.plan = std::make_shared<const Plan>(built.plan);
  out.settled = is_certain(*model, built) && !awaits_modes(kind, context, *model, built.plan);
  out.upper_peak_bytes = upper_peak(context, *model, built);
  if (!out.settled) {
    const Bytes keep_all =
        context.base_bytes + Bytes(step_peak_bytes(model->upper, fastest_choice(model->upper)));
    const bool limited = budget_bytes > Bytes(0);
    out.upper_peak_bytes =
        std::max(out.upper_peak_bytes, limited ? std::min(budget_bytes, keep_all) : keep_all);
  }
  auto points = planner_->frontier(problem.chain);
  if (!points) return points.error();
  out.frontier = absolute_frontier(*points, problem, context.base_bytes);
  out.all_full = all_full(model->point, context.base_bytes);
  return out;
}

Result<ShapeEstimate> ControllerImpl::estimate(const ShapeKey& shape, Bytes budget_bytes) const {
  try {
    return estimated(shape, budget_bytes);
  } catch (const std::overflow_error& error) {  // of absurd shapes or measurements
    return Error{ErrorCode::kUnavailable, std::string("no estimate: ") + error.what()};
  }
}

Result<StepCosts> ControllerImpl::costs(const StepContext& context) const {
  auto model = model_of(kinds_.expected(context.shape), context);
  if (!model) return model.error();
  return std::move(model->point);
}

}  // namespace pudica
