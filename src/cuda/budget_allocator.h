// Torch's CUDA allocator, and in front of it the question whether an allocation fits its device's
// budget. Everything else is handed on.
#pragma once

#include "cuda/cuda_meter.h"

namespace pudica::hooks {

// Puts it before `inner` for the rest of the process. Blocks are the inner one's, before and after.
// Once; not thread-safe.
void install_budget_allocator(TorchAllocator& inner);

}  // namespace pudica::hooks
