// Trying out, in the call that a menu is found from, whether the tape gives saved tensors back.
#pragma once

#include <cstdint>
#include <vector>

#include "torch/class_menu.h"

namespace pudica::hooks {

// Recovers the storages of `slots` (ascending) as a backward would, last saved first, while those
// in `there` are there, and compares with what was saved. False: they differ, or an operator threw.
// The tape is afterwards as before.
bool gives_back(const Collection& call, const std::vector<std::uint32_t>& slots,
                const StorageSet& there);

}  // namespace pudica::hooks
