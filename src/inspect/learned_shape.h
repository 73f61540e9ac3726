// Shapes as users write them, read by what a model knows of its dimensions.
#pragma once

#include <string_view>
#include <vector>

#include "pudica/predictor.h"
#include "pudica/result.h"
#include "pudica/shape_key.h"

namespace pudica::inspect {

// The names of the key's dimensions, from what was learned; empty where nothing was.
DimensionNames dimension_names(const std::vector<LearnedQuantity>& learned);

// Reads `12x384`, the numbers in the key's order, or `batch=12,source=384` in any order. Keeps no
// name that is not among `names`. Errors: kInvalidArgument naming the text and the dimensions
// expected; kUnavailable where `names` is empty.
Result<ShapeKey> parse_shape(std::string_view text, const DimensionNames& names);

}  // namespace pudica::inspect
