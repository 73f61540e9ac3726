// What makes a configuration impossible to start with, beyond what its text alone tells.
#pragma once

#include <string>
#include <vector>

#include "daemon/daemon_config.h"

namespace pudica::daemon {

// Every fault of the values that the start would refuse on this machine: key, value seen, value
// expected. Opens and changes nothing. What only trying tells (a port in use, a directory that
// cannot be written) is left to the start. Empty: none. Thread-safe but for getgrnam.
std::vector<std::string> config_faults(const DaemonConfig& config);

}  // namespace pudica::daemon
