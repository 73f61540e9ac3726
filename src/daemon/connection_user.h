// Whose process is at the other end of a connection.
#pragma once

#include <optional>

namespace pudica::daemon {

// Of a UNIX socket, and of a TCP connection from this host: the user whose socket the other end is,
// as the kernel says. nullopt: another host's, closed already, or not told. Thread-safe; waits for
// nobody.
std::optional<unsigned> connection_user(int socket);

}  // namespace pudica::daemon
