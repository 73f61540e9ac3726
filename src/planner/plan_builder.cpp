#include "pudica/plan_builder.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "planner/saturating.h"

namespace pudica {
namespace {

using Choice = std::vector<std::uint8_t>;

// An upper bound within this share of the point estimate is as good as certain: what rounds to
// whole rows (masked tokens, say) never becomes exact, and need not.
constexpr std::int64_t kCertainShare = 1000;

// "5 of 8 layers recomputed", "2 of 8 layers recomputed, 3 recomputed in part, 1 offloaded",
// "8 of 8 layers recomputed, in 5 segments"
std::string describe(const Plan& plan) {
  const std::vector<Mode>& modes = plan.modes;
  const auto count = [&modes](Mode::Kind kind) {
    return std::ranges::count(modes, kind, &Mode::kind);
  };
  const auto full = count(Mode::Kind::kFull);
  const auto selective = count(Mode::Kind::kSelective);
  const auto offload = count(Mode::Kind::kOffload);
  std::string text =
      std::to_string(full) + " of " + std::to_string(modes.size()) + " layers recomputed";
  if (!plan.joined.empty()) {
    text += ", in " + std::to_string(full - std::ranges::count(plan.joined, 1)) + " segments";
  }
  if (selective > 0) text += ", " + std::to_string(selective) + " recomputed in part";
  if (offload > 0) text += ", " + std::to_string(offload) + " offloaded";
  return text;
}

// What a request comes down to, in bytes above the step's base.
std::int64_t room_of(const PlanRequest& request) {
  const StepContext& context = request.context;
  return std::min((context.budget_bytes - context.base_bytes - request.margin_bytes).count(),
                  request.most_bytes);
}

// The user's, and what of it was not to be had.
std::string budget_text(const StepContext& context) {
  std::string text = "budget " + format_bytes(context.budget_bytes + context.allocator_bytes);
  if (context.allocator_bytes > Bytes(0)) {
    text += " less " + format_bytes(context.allocator_bytes) + " for the allocator";
  }
  return text;
}

std::string budget_text(const PlanRequest& request) {
  std::string text = budget_text(request.context);
  if (request.margin_bytes > Bytes(0)) {
    text += " less margin " + format_bytes(request.margin_bytes);
  }
  return text;
}

// The need of a segment's backward is that of the whole: it is recomputed when its last layer's
// backward begins, and the frame that asks is its first layer's.
void add_joint_needs(BuiltPlan& built, const StepCosts& costs) {
  const std::vector<std::uint8_t>& joined = built.plan.joined;
  for (std::size_t last = joined.size(); last-- > 0;) {
    std::size_t first = last;
    while (joined[first] != 0) --first;
    if (first == last) continue;
    built.plan.backward_need_bytes[first] = joint_backward_peak_bytes(costs, first, last);
    last = first;
  }
}

void take_choice(BuiltPlan& built, const StepCosts& costs, const PlanRequest& request,
                 Choice choice, Choice joined = {}) {
  built.plan.modes.clear();
  built.plan.forward_need_bytes.clear();
  built.plan.backward_need_bytes.clear();
  for (std::size_t i = 0; i < choice.size(); ++i) {
    const LayerModeCosts& mode = costs.layers[i].modes[choice[i]];
    built.plan.modes.push_back(mode.mode);
    built.plan.forward_need_bytes.push_back(mode.forward_peak_bytes);
    built.plan.backward_need_bytes.push_back(mode.backward_peak_bytes);
  }
  built.plan.joined = std::move(joined);
  add_joint_needs(built, costs);
  built.plan.predicted_peak_bytes =
      request.context.base_bytes + Bytes(step_peak_bytes(costs, choice, built.plan.joined));
  built.plan.predicted_extra_seconds = step_extra_seconds(costs, choice);
  built.choice = std::move(choice);
}

// The same modes within each class, those that keep least first: identical layers have the least
// peak in this order where the backward's transient does not depend on the mode (adjacent
// exchange), and a lower peak at the same time leaves more room for what was not foreseen.
Choice early_first(const StepCosts& costs, const Choice& choice) {
  const auto kept = [&costs](std::size_t layer, std::uint8_t mode) {
    const LayerModeCosts& mode_costs = costs.layers[layer].modes[mode];
    return mode_costs.forward_net_bytes - mode_costs.released_bytes;
  };
  Choice sorted = choice;
  std::vector<std::uint8_t> done(choice.size(), 0);
  for (std::size_t i = 0; i < choice.size(); ++i) {
    if (done[i] != 0) continue;
    std::vector<std::size_t> members;
    for (std::size_t j = i; j < choice.size(); ++j) {
      const bool same = costs.layers[j].layer_class == costs.layers[i].layer_class &&
                        costs.layers[j].modes.size() == costs.layers[i].modes.size();
      if (same && done[j] == 0) members.push_back(j);
    }
    Choice modes;
    for (const std::size_t j : members) {
      modes.push_back(choice[j]);
      done[j] = 1;
    }
    std::ranges::sort(modes,
                      [&](std::uint8_t a, std::uint8_t b) { return kept(i, a) < kept(i, b); });
    for (std::size_t k = 0; k < members.size(); ++k) sorted[members[k]] = modes[k];
  }
  const bool better = step_peak_bytes(costs, sorted) <= step_peak_bytes(costs, choice) &&
                      step_extra_seconds(costs, sorted) <= step_extra_seconds(costs, choice);
  return better ? sorted : choice;
}

void note_gap(Plan& plan, const ChainPlan& solved) {
  plan.certified_gap_seconds =
      1e-9 * static_cast<double>(std::max<std::int64_t>(0, solved.time_ns - solved.lower_bound_ns));
}

void note_shortage(Plan& plan, const PlanRequest& request) {
  const Bytes floor = plan.predicted_peak_bytes;
  plan.feasible = floor <= request.context.budget_bytes;
  if (plan.feasible) {
    const bool needs_margin = floor + request.margin_bytes > request.context.budget_bytes;
    plan.reason = describe(plan) + ": the least peak, " + format_bytes(floor) + ", fits the " +
                  budget_text(request) + (needs_margin ? " only without the margin" : "");
    return;
  }
  plan.reason = "infeasible: the least peak of any plan is " + format_bytes(floor) + ", " +
                budget_text(request.context) + ", short by " +
                format_bytes(floor - request.context.budget_bytes);
}

bool are_alike(const ChainProblem& above, const ChainProblem& below) {
  if (above.chain.tail_bytes != below.chain.tail_bytes) return false;
  for (std::size_t i = 0; i < above.chain.layers.size(); ++i) {
    if (!std::ranges::equal(above.chain.layers[i], below.chain.layers[i], {},
                            &ChainMode::peak_bytes, &ChainMode::peak_bytes)) {
      return false;
    }
  }
  return true;
}

// The fastest plan of layers on their own. The chain bounded from below has every plan that fits:
// one of those that fits is the fastest, and its proof holds for all others. Where it does not fit,
// as much less is asked of the chain as it was over. Behind that is the chain bounded from above.
Result<ChainPlan> solve_layers(Planner& planner, const StepCosts& costs, const ChainProblem& above,
                               std::int64_t room, std::span<const std::uint8_t> warm) {
  constexpr int kMostTries = 6;
  const ChainProblem below = to_chain(costs, ChainBound::kFromBelow);
  const std::int64_t available = room - above.offset_bytes;
  if (are_alike(above, below)) return planner.solve(above.chain, available, warm);
  const std::int64_t most = std::max(room, above.constant_bytes);
  const auto over = [&](const ChainPlan& plan) {
    return step_peak_bytes(costs, plan.choice) - most;
  };
  std::int64_t asked = available;
  std::int64_t too_much = available;
  std::optional<std::int64_t> enough;
  std::int64_t bound_ns = 0;
  std::optional<ChainPlan> best;
  const auto take = [&](Result<ChainPlan> plan) {
    if (plan && (!best || plan->time_ns < best->time_ns)) best = std::move(*plan);
  };
  for (int tried = 0; tried < kMostTries; ++tried) {
    auto found = planner.solve(below.chain, asked, warm);
    if (tried == 0 && (!found || over(*found) <= 0)) return found;
    if (!found) break;
    if (tried == 0) bound_ns = found->lower_bound_ns;
    const std::int64_t beyond = over(*found);
    (beyond > 0 ? too_much : enough.emplace()) = asked;
    if (beyond <= 0) take(std::move(found));
    asked = enough ? *enough + (too_much - *enough) / 2 : too_much - beyond;
  }
  take(planner.solve(above.chain, available, warm));
  if (!best) best = floor_plan(below.chain);
  if (over(*best) > 0) return Error{ErrorCode::kOverBudget, "layers on their own do not fit"};
  best->lower_bound_ns = bound_ns;
  return std::move(*best);
}

// The fastest plan of layers that fit, else of least peak.
void take_solved(BuiltPlan& built, Planner& planner, const StepCosts& costs,
                 const PlanRequest& request, std::span<const std::uint8_t> warm) {
  const std::int64_t room = room_of(request);
  const Bytes keep_all = request.keep_all_bytes.value_or(built.plan.predicted_peak_bytes);
  ChainProblem problem = to_chain(costs);
  auto solved = solve_layers(planner, costs, problem, room, warm);
  if (!solved) {
    add_joints(costs, &problem);
    solved = planner.solve(problem.chain, room - problem.offset_bytes, {});
  }
  built.layers_fit = solved.has_value();
  if (!solved) {
    ChainPlan least = floor_plan(problem.chain);
    take_choice(built, costs, request, std::move(least.choice), std::move(least.joined));
    note_shortage(built.plan, request);
    return;
  }
  note_gap(built.plan, *solved);
  const bool joint = !solved->joined.empty();
  Choice choice = joint ? std::move(solved->choice) : early_first(costs, solved->choice);
  take_choice(built, costs, request, std::move(choice), std::move(solved->joined));
  if (problem.constant_bytes > room) {
    note_shortage(built.plan, request);  // of what no plan can change: the layers keep to theirs
    return;
  }
  built.plan.reason = describe(built.plan) + ": keeping all needs " + format_bytes(keep_all) +
                      ", " + budget_text(request);
}

}  // namespace

std::vector<std::uint8_t> fastest_choice(const StepCosts& costs) {
  Choice choice;
  choice.reserve(costs.layers.size());
  for (const LayerCosts& layer : costs.layers) {
    const auto best = std::ranges::min_element(layer.modes, {}, &LayerModeCosts::extra_seconds);
    choice.push_back(static_cast<std::uint8_t>(best - layer.modes.begin()));
  }
  return choice;
}

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
  const Bytes keep_all = plan.predicted_peak_bytes;
  if ((keep_all - request.context.base_bytes).count() <= room_of(request)) {
    plan.reason = "everything fits: keeping all needs " +
                  format_bytes(request.keep_all_bytes.value_or(keep_all)) + ", " +
                  budget_text(request);
  } else {
    take_solved(built, planner, costs, request, warm);
  }
  const double ample =
      request.ample_fraction * static_cast<double>(request.context.budget_bytes.count());
  plan.revocable = static_cast<double>(plan.predicted_peak_bytes.count()) > ample;
  return built;
}

namespace {

StepCosts without_what_is_beside(StepCosts costs) {
  costs.head_peak_bytes = costs.until_release_peak_bytes = costs.return_peak_bytes = 0;
  costs.head_behind_holder_bytes = costs.epilogue_peak_bytes = costs.optimizer_peak_bytes = 0;
  return costs;
}

}  // namespace

void tighten(BuiltPlan& built, const StepCosts& costs, const StepCosts& likely,
             const PlanRequest& request, const LikelyPeak& peak_of) {
  if (built.layers_fit) return;
  // What a plan is worse by if the highest point is as told, and if it was a wrong prediction of
  // what lies beside the layers, where no plan changes much.
  const StepCosts layers = without_what_is_beside(likely);
  const auto regret_of = [&](const BuiltPlan& plan) {
    const std::int64_t peak = peak_of(plan);
    const bool fits = request.context.base_bytes + Bytes(peak) <= request.context.budget_bytes;
    const std::int64_t of_layers = step_peak_bytes(layers, plan.choice, plan.plan.joined);
    return std::pair(!fits, fits ? peak : planner::saturating_add(peak, of_layers));
  };
  Choice choice;
  for (const LayerCosts& layer : likely.layers) {
    const auto held = [](const LayerModeCosts& mode) {
      return std::pair(mode.forward_net_bytes - mode.released_bytes, mode.backward_peak_bytes);
    };
    const auto least = std::ranges::min_element(layer.modes, {}, held);
    choice.push_back(static_cast<std::uint8_t>(least - layer.modes.begin()));
  }
  BuiltPlan best = built;
  take_choice(best, costs, request, std::move(choice));
  if (request.context.base_bytes + Bytes(peak_of(best)) > request.context.budget_bytes) {
    ChainProblem problem = to_chain(likely);
    add_joints(likely, &problem);
    ChainPlan least = floor_plan(problem.chain);
    BuiltPlan joint = built;
    take_choice(joint, costs, request, std::move(least.choice), std::move(least.joined));
    if (regret_of(joint) < regret_of(best)) best = std::move(joint);
  }
  if (regret_of(best) <= regret_of(built)) built = std::move(best);
}

bool is_certain(const StepModel& model, const BuiltPlan& built) {
  if (built.measured_bytes) return true;
  if (!model.fit) return false;
  if (model.identified) return true;
  const std::int64_t point = step_peak_bytes(model.point, built.choice, built.plan.joined);
  const std::int64_t upper = step_peak_bytes(model.upper, built.choice, built.plan.joined);
  return upper - point <= point / kCertainShare;
}

}  // namespace pudica
