// What a mode needs at one shape, told from the only other shape at which it was seen.
#pragma once

#include <cstdint>
#include <optional>

#include "predictor/step/class_model.h"
#include "pudica/step_costs.h"

namespace pudica {

// UnknownMode::seen of a mode of the class at `now`'s shape. nullopt: it was not seen at just one
// shape, or `keep` and `full` are not known at both. Thread-safe as the store is.
std::optional<LayerModeCosts> grown_since_seen(const SegmentStore& store, const ClassQuery& now,
                                               std::uint8_t variant, Mode mode);

}  // namespace pudica
