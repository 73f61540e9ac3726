#include "controller/plan_builder.h"

#include <algorithm>
#include <string>

namespace pudica {
namespace {

using Choice = std::vector<std::uint8_t>;

Choice fastest_choice(const StepCosts& costs) {
  Choice choice;
  choice.reserve(costs.layers.size());
  for (const LayerCosts& layer : costs.layers) {
    const auto best = std::ranges::min_element(layer.modes, {}, &LayerModeCosts::extra_seconds);
    choice.push_back(static_cast<std::uint8_t>(best - layer.modes.begin()));
  }
  return choice;
}

// "5 of 8 layers recomputed", "2 of 8 layers recomputed, 3 recomputed in part, 1 offloaded"
std::string describe(const std::vector<Mode>& modes) {
  const auto count = [&modes](Mode::Kind kind) {
    return std::ranges::count(modes, kind, &Mode::kind);
  };
  const auto full = count(Mode::Kind::kFull);
  const auto selective = count(Mode::Kind::kSelective);
  const auto offload = count(Mode::Kind::kOffload);
  std::string text =
      std::to_string(full) + " of " + std::to_string(modes.size()) + " layers recomputed";
  if (selective > 0) text += ", " + std::to_string(selective) + " recomputed in part";
  if (offload > 0) text += ", " + std::to_string(offload) + " offloaded";
  return text;
}

// What a request comes down to, in bytes above the step's base.
struct Room {
  std::int64_t with_margin = 0;
  std::int64_t without_margin = 0;
};

Room room_of(const PlanRequest& request) {
  const Bytes whole = request.context.budget_bytes - request.context.base_bytes;
  return {(whole - request.margin_bytes).count(), whole.count()};
}

std::string budget_text(const PlanRequest& request) {
  std::string text = "budget " + format_bytes(request.context.budget_bytes);
  if (request.margin_bytes > Bytes(0)) {
    text += " less margin " + format_bytes(request.margin_bytes);
  }
  return text;
}

void take_choice(BuiltPlan& built, const StepCosts& costs, const PlanRequest& request,
                 Choice choice) {
  built.plan.modes.clear();
  for (std::size_t i = 0; i < choice.size(); ++i) {
    built.plan.modes.push_back(costs.layers[i].modes[choice[i]].mode);
  }
  built.plan.predicted_peak_bytes =
      request.context.base_bytes + Bytes(step_peak_bytes(costs, choice));
  built.plan.predicted_extra_seconds = step_extra_seconds(costs, choice);
  built.choice = std::move(choice);
}

// Nothing fits within the margin: the plan of least peak, and among those the fastest.
void take_floor(BuiltPlan& built, Planner& planner, const StepCosts& costs,
                const PlanRequest& request, const ChainProblem& problem) {
  const ChainPlan least = floor_plan(problem.chain);
  Choice choice = least.choice;
  if (problem.constant_bytes - problem.offset_bytes > least.peak_bytes) {
    // The peak lies where no plan reaches; recomputing below it would buy nothing.
    auto faster =
        planner.solve(problem.chain, problem.constant_bytes - problem.offset_bytes, choice);
    if (faster) choice = faster->choice;
  }
  take_choice(built, costs, request, std::move(choice));
  Plan& plan = built.plan;
  const Bytes floor = plan.predicted_peak_bytes;
  plan.feasible = floor <= request.context.budget_bytes;
  if (plan.feasible) {
    plan.reason = describe(plan.modes) + ": the least peak, " + format_bytes(floor) +
                  ", fits the " + budget_text(request) + " only without the margin";
    return;
  }
  plan.reason = "infeasible: the least peak of any plan is " + format_bytes(floor) + ", budget " +
                format_bytes(request.context.budget_bytes) + ", short by " +
                format_bytes(floor - request.context.budget_bytes);
}

}  // namespace

BuiltPlan build_plan(Planner& planner, const StepCosts& costs, const PlanRequest& request,
                     std::span<const std::uint8_t> warm) {
  BuiltPlan built;
  Plan& plan = built.plan;
  plan.shape = request.context.shape;
  take_choice(built, costs, request, fastest_choice(costs));
  if (request.context.budget_bytes <= Bytes(0)) {
    plan.revocable = false;
    plan.reason = "no budget: everything kept";
    return built;
  }
  const Room room = room_of(request);
  const Bytes keep_all = plan.predicted_peak_bytes;
  const auto fits = [&](std::int64_t bytes) {
    return (plan.predicted_peak_bytes - request.context.base_bytes).count() <= bytes;
  };
  if (fits(room.with_margin)) {
    plan.reason = "everything fits: keeping all needs " + format_bytes(keep_all) + ", " +
                  budget_text(request);
  } else {
    const ChainProblem problem = to_chain(costs);
    auto solved = problem.constant_bytes > room.with_margin
                      ? Result<ChainPlan>(Error{ErrorCode::kOverBudget, "constant segments"})
                      : planner.solve(problem.chain, room.with_margin - problem.offset_bytes, warm);
    if (solved) {
      plan.certified_gap_seconds = 1e-9 * static_cast<double>(std::max<std::int64_t>(
                                              0, solved->time_ns - solved->lower_bound_ns));
      take_choice(built, costs, request, std::move(solved->choice));
      plan.reason = describe(plan.modes) + ": keeping all needs " + format_bytes(keep_all) + ", " +
                    budget_text(request);
    } else {
      take_floor(built, planner, costs, request, problem);
    }
  }
  const double ample =
      request.ample_fraction * static_cast<double>(request.context.budget_bytes.count());
  plan.revocable = static_cast<double>(plan.predicted_peak_bytes.count()) > ample;
  return built;
}

}  // namespace pudica
