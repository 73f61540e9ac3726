// BaseBytes: what is live as steps begin.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "pudica/bytes.h"
#include "pudica/policy.h"

namespace pudica {

// Steps that begin with gradients present (accumulation) are told apart from those without: the
// index is 0 without, 1 with them. Not thread-safe.
class BaseBytes {
 public:
  using Saved = std::array<std::optional<Bytes>, 2>;

  // A step begins, the `step`-th of this run.
  void begin_step(const StepContext& context, std::uint64_t step);

  // Of the latest step of each sort. nullopt: none was seen.
  [[nodiscard]] const Saved& latest() const { return latest_; }
  // That the optimizer of the step under way will make, for good: in the first steps behind a
  // restored state, which says what its optimizer leads to.
  [[nodiscard]] Bytes coming_state() const { return coming_state_; }
  // The most that the outputs of the step before took beside a step.
  [[nodiscard]] Bytes most_returning() const { return most_returning_; }
  // A step as the latest ones began, of another shape or budget.
  [[nodiscard]] StepContext context_at(const ShapeKey& shape, Bytes budget) const;

  void restore(const Saved& saved, Bytes returning);
  // What was restored is not to be believed.
  void drop_restored();

 private:
  Saved latest_;
  // After a restore, until the optimizer's first step is over: the base bytes of the steps behind
  // it, which it leads to. nullopt: over, or nothing was restored.
  Saved coming_;
  Bytes coming_state_{0};
  Bytes most_returning_{0};
};

}  // namespace pudica
