// What the host takes of what layers put away.
#pragma once

#include <cstdint>

#include "predictor/step/step_model.h"

namespace pudica {

// Leaves `offload` to layers from the first on, which hold for the longest, until what they put
// away fills `host_bytes`. What one puts away is at most what it has at its highest beyond what it
// leaves on the device.
void fill_host(StepModel& model, std::int64_t host_bytes);

}  // namespace pudica
