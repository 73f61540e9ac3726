// Some of a run's shapes, to be measured for all of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "pudica/shape_key.h"

namespace pudica::train {

// At most `most` of the shapes, evenly from the smallest volume to the largest, both ends among
// them; each with what it had. Requires: most >= 2.
std::map<ShapeKey, std::int64_t> spread_shapes(const std::map<ShapeKey, std::int64_t>& shapes,
                                               std::size_t most);

}  // namespace pudica::train
