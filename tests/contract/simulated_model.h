// A transformer-like chain whose bytes and times are known: what a step does under any plan.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pudica/peak_model.h"
#include "pudica/policy.h"

namespace pudica {

// Layers of one class on a menu of keep and full; bytes grow with batch and length as those of
// attention do. The walk over a step is written out here, apart from the peak model under test.
// Thread-safe: a value.
struct SimulatedModel {
  std::size_t layers = 6;
  std::int64_t hidden = 64;
  std::int64_t heads = 4;

  [[nodiscard]] StepStructure structure() const;

  // Bytes that a kept layer holds beyond its output.
  [[nodiscard]] std::int64_t saved_bytes(const ShapeKey& shape) const;
  [[nodiscard]] StepCosts costs(const ShapeKey& shape) const;

  // The step under the plan: modes by layer (`full` for anything not on the menu), peak, overrun
  // against the budget, and every segment where the decision asks for a record.
  [[nodiscard]] StepOutcome run(const StepContext& context, const StepDecision& decision) const;
};

}  // namespace pudica
