// What is embedded in the daemon: the page's files, the OpenAPI document.
#pragma once

#include <span>

#include "base/embedded.h"

namespace pudica::daemon {

std::span<const EmbeddedFile> embedded_files();

}  // namespace pudica::daemon
