// Where the daemon's socket is.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace pudica {

// `argument` (--socket), else PUDICA_SOCKET, else $XDG_RUNTIME_DIR/pudica/pudicad.sock, else
// /run/pudica/pudicad.sock for root, else /tmp/pudica-UID/pudicad.sock. Empty values count as not
// given.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
std::string daemon_socket_path(const std::string& argument, const Environment& environment,
                               unsigned user_id);
// By this process's environment and user.
std::string daemon_socket_path(const std::string& argument);

}  // namespace pudica
