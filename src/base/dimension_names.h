// Names of dimensions that come from outside: kept for the life of the process, so bounded.
#pragma once

#include <cstddef>

#include "pudica/shape_key.h"

namespace pudica {

// In one process, of lists of names and with its own among them.
inline constexpr std::size_t kMostDimensionNames = 1024;

// As intern_dimension_names(), but nullptr for names that are new where there are as many as
// allowed. Thread-safe.
const DimensionNames* intern_foreign_names(const DimensionNames& names);

}  // namespace pudica
