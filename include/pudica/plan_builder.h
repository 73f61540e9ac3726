// From the costs of a step to a published plan: the one place where planner output becomes a Plan.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "pudica/peak_model.h"
#include "pudica/plan.h"
#include "pudica/planner.h"
#include "pudica/policy.h"
#include "pudica/step_costs.h"

namespace pudica {

struct PlanRequest {
  StepContext context;
  Bytes margin_bytes{0};        // held back from the budget
  double ample_fraction = 0.9;  // predicted peak below this share of the budget: hook-free keep
  // Told in reasons; nullopt: as the costs have it.
  std::optional<Bytes> keep_all_bytes;
  // Plans that peak higher above the base were seen not to fit.
  std::int64_t most_bytes = std::numeric_limits<std::int64_t>::max();
};

struct BuiltPlan {
  Plan plan;                         // id 0: the caller numbers it
  std::vector<std::uint8_t> choice;  // menu index per layer
  bool layers_fit = true;            // what does not fit is beside them, as an optimizer's step
  // Above the base, where the plan was run at this shape and the model was wrong.
  std::optional<std::int64_t> measured_bytes;
};

// Solves for context.budget - margin - base. Where no plan of the layers fits, that of least peak;
// where what lies beside them does not, the fastest whose layers fit. In both cases feasible =
// false and a reason that names budget, floor and shortage. Never fails for valid costs.
BuiltPlan build_plan(Planner& planner, const StepCosts& costs, const PlanRequest& request,
                     std::span<const std::uint8_t> warm);

// For a plan whose layers do not fit: every layer in the mode that holds least, or joined where
// that does not fit either, where that peaks no higher by `peak_of`, which tells what a plan needs
// above the base at most likely. The plan of least peak relaxes whatever lies below its highest
// point, which may be a wrong prediction, or a bound far above what is to come.
using LikelyPeak = std::function<std::int64_t(const BuiltPlan&)>;
void tighten(BuiltPlan& built, const StepCosts& costs, const StepCosts& likely,
             const PlanRequest& request, const LikelyPeak& peak_of);

// The fastest mode of each layer: everything kept, mostly.
std::vector<std::uint8_t> fastest_choice(const StepCosts& costs);

// Whether the plan's predicted peak is one to hold it to: it was measured, or the model fits, and
// its upper bound is as good as its point estimate.
bool is_certain(const StepModel& model, const BuiltPlan& built);

}  // namespace pudica
