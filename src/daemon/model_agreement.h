// Whether two learned models speak of the same layers.
#pragma once

#include <cstdint>

#include "pudica/controller.h"

namespace pudica::daemon {

enum class Agreement : std::uint8_t {
  kUnknown,  // neither knows what the other does
  kAgrees,
  kContradicts,
};

// Compares what both are sure of, at the shapes that either has seen last: bytes of each layer in
// each mode, forward and backward. Layers of another number contradict. Both must trust what they
// restored (ControllerOptions). Never throws on odd states: those agree with nothing.
Agreement compare(const Controller& left, const Controller& right);

}  // namespace pudica::daemon
