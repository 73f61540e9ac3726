// KnownPeaks: what plans were measured to need at the shapes where the model of a step is wrong.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "pudica/plan.h"
#include "pudica/policy.h"

namespace pudica {

// The model adds up what layers of a class need, wherever they stand. Where that is not the whole
// truth (what a layer leaves may hang on the mode of the one beside it), a plan that was run knows
// better. Bytes are above the step's base. Bounded: the oldest plan goes first. Not thread-safe.
class KnownPeaks {
 public:
  static constexpr std::size_t kMostPlans = 256;
  // Of the latest runs of a plan the highest counts: what differs from run to run is bounded.
  static constexpr std::size_t kMostRuns = 3;

  // The plan ran and this was its peak.
  void note(const StepContext& context, const Plan& plan, std::int64_t peak_bytes);
  // Layers of it were revoked: it needs as much at least.
  void note_revoked(const StepContext& context, const Plan& plan, std::int64_t least_bytes);
  // nullopt: the plan was never noted here to its end.
  [[nodiscard]] std::optional<std::int64_t> peak(const StepContext& context,
                                                 const Plan& plan) const;
  // What the plan needs at least; 0: nothing is known.
  [[nodiscard]] std::int64_t least(const StepContext& context, const Plan& plan) const;
  void clear() { known_.clear(); }
  [[nodiscard]] std::size_t size() const { return known_.size(); }

 private:
  struct Known {
    ShapeKey shape;
    bool gradients_present = false;
    bool casts_present = false;
    Bytes returning_bytes{0};
    std::vector<Mode> modes;
    std::vector<std::uint8_t> joined;
    std::deque<std::int64_t> peaks;  // the latest last
    std::int64_t least_bytes = 0;    // where it never ran to its end
  };

  [[nodiscard]] const Known* find(const StepContext& context, const Plan& plan) const;
  Known& at(const StepContext& context, const Plan& plan);

  std::vector<Known> known_;  // oldest first
};

}  // namespace pudica
