// The region of shapes on which a plan fits, found by bisection on the peak model.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "pudica/shape_key.h"

namespace pudica {

// True if the plan fits at this shape; nullopt where nothing can be predicted.
using FitsAt = std::function<std::optional<bool>(const ShapeKey&)>;

// For each dimension but the first (the batch; it too where it is the only one) the longest key
// that still fits with the other dimensions as in `key`. Peaks grow with each dimension, so every
// shorter key fits as well; each member was checked itself. Empty: not even `key` fits.
// At most 48 calls of `fits` for each dimension.
std::vector<ShapeKey> region_of(const ShapeKey& key, const FitsAt& fits);

}  // namespace pudica
