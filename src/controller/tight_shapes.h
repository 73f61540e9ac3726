// TightShapes: at which shapes steps that no model plans had to give back most of what they kept.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "pudica/bytes.h"
#include "pudica/policy.h"
#include "pudica/shape_key.h"

namespace pudica {

// Keeping everything and revoking at the budget costs as much as recomputing where nearly all is
// revoked in the end, and needs more: what is given back in the backward is made again there. A
// shape is tight at a budget if a step at that budget or a larger one, at a shape no larger in any
// dimension, went over it or revoked at least half of its layers. Bounded. Not thread-safe.
class TightShapes {
 public:
  void note(const StepOutcome& outcome, std::size_t layers) {
    const StepContext& context = outcome.context;
    const bool is_tight =
        outcome.overrun || 2 * outcome.revocations >= static_cast<std::int64_t>(layers);
    if (!is_tight || layers == 0 || contains(context.shape, context.budget_bytes)) return;
    if (known_.size() >= kMost) known_.erase(known_.begin());
    known_.push_back({context.shape, context.budget_bytes});
  }

  [[nodiscard]] bool contains(const ShapeKey& shape, Bytes budget) const {
    return std::ranges::any_of(known_, [&](const Tight& tight) {
      if (budget > tight.budget || shape.size() != tight.shape.size()) return false;
      for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] < tight.shape[i]) return false;
      }
      return true;
    });
  }

 private:
  static constexpr std::size_t kMost = 64;
  struct Tight {
    ShapeKey shape;
    Bytes budget{0};
  };
  std::vector<Tight> known_;  // oldest first
};

}  // namespace pudica
