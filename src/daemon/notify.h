// Tells systemd how the daemon is, where it was started by it (Type=notify).
#pragma once

#include <string>

namespace pudica::daemon {

// "READY=1", "STOPPING=1", ... to the socket that NOTIFY_SOCKET names; nothing where it is not set.
// False where it is set and nobody took it.
bool notify_systemd(const std::string& message);

// What systemd wants at a reload: RELOADING=1 with the monotonic time.
std::string reloading_message();

}  // namespace pudica::daemon
