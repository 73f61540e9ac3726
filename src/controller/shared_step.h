// Plans for forwards that share a backward (contrastive training), one forward at a time.
#pragma once

#include <cstddef>

#include "pudica/plan_builder.h"
#include "pudica/step_costs.h"

namespace pudica {

// The costs of a step whose forward runs `times` times before one backward, as one chain. Parameter
// gradients appear in the backward of the last forward, which runs first. Requires: times >= 1.
StepCosts repeated(const StepCosts& costs, std::size_t times);
StepModel repeated(const StepModel& model, std::size_t times);

// The part of a plan of repeated(costs, n) that is the first forward's: its layers' modes. What the
// forwards need together is not told: no peak is predicted. Under a budget every kept layer can be
// revoked.
void take_first(BuiltPlan& built, const StepCosts& costs, const StepContext& context);

}  // namespace pudica
