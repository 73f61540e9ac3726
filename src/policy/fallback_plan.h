// The plan of a policy that does not know enough to plan: every layer recomputed.
#pragma once

#include <cstddef>

#include "pudica/plan.h"
#include "pudica/shape_key.h"

namespace pudica {

// Every layer `full`, also those beyond `layers`; not revocable, since nothing is kept. The caller
// numbers it and states the reason.
inline Plan fallback_plan(const ShapeKey& shape, std::size_t layers) {
  Plan plan;
  plan.shape = shape;
  plan.modes.assign(layers, Mode::full());
  plan.default_mode = Mode::full();
  plan.revocable = false;
  return plan;
}

}  // namespace pudica
