// What running layers again cost a step, and what a peak took of its budget: told in one way by
// the trainer, the daemon, its page and the command line.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "pudica/bytes.h"
#include "pudica/mode.h"
#include "pudica/plan.h"
#include "pudica/policy.h"

namespace pudica {

// All functions are pure, and none throws but for want of memory.

// The modes of a plan for every layer of a structure: a plan that was made before the layers were
// known has none of its own for them.
std::vector<Mode> planned_modes(const Plan& plan, const StepStructure& structure);

// Whether a layer in this mode runs again in the backward, whole or in part. What is offloaded
// comes back and is not run again.
bool is_recomputed(Mode mode);

// Layer calls that ran again, whole or in part: by plan, and those that were revoked. Of one step.
std::int64_t recomputed_calls(const std::vector<Mode>& modes, std::int64_t revocations);

// The seconds of a step in which layers ran again, by plan or after a revocation: as they were
// measured; a whole layer of which nothing was measured counts as its class's forward. On a device
// whose times come after the step, as the plan predicted. nullopt: layers ran again, and nothing
// is known of what that took.
std::optional<double> recompute_seconds(const StepOutcome& outcome, const StepStructure& structure);

// The share of time in which layers ran again, in [0, 1]. nullopt: no time was measured.
std::optional<double> recomputed_share(double recompute_seconds, double step_seconds);

// What a step's peak took of the budget that it ran under; above 1: over it. nullopt: that step
// was not limited, or nothing was metered.
std::optional<double> budget_used(Bytes peak_bytes, Bytes budget_bytes);

}  // namespace pudica
