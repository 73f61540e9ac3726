// Directories for the user alone.
#pragma once

#include <filesystem>

#include "pudica/result.h"

namespace pudica::daemon {

// Makes what is missing of the path, each with mode 0700. Errors: kUnavailable naming the
// directory.
Result<void> make_private_directories(const std::filesystem::path& directory);

}  // namespace pudica::daemon
