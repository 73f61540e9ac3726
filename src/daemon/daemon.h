// The daemon put together: store, registry, endpoints, server, signals.
#pragma once

#include "daemon/options.h"

namespace pudica::daemon {

// Serves until SIGTERM or SIGINT, or says why it cannot. Requires: no other thread runs yet.
Finished run_daemon(const Options& options, const DaemonConfig& config);

}  // namespace pudica::daemon
