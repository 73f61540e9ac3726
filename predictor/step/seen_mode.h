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

// How much of what a menu promised at `before` is freed at `now`'s shape, at least: tensors grow as
// batch x length does and shrink as that or, where the layer is seen to shrink faster, as batch x
// length^2; a little less, for what does not grow quite so. Of a layer that grew by less than its
// batches nothing grew for certain. 0: nothing can be told.
double growth_at_least(const SegmentStore& store, const ClassQuery& now, std::uint8_t variant,
                       const ShapeKey& before);

}  // namespace pudica
