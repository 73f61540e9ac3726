// ADDRESS:PORT to listen at.
#pragma once

#include <optional>
#include <string>

struct sockaddr;

namespace pudica::daemon {

struct HostPort {
  std::string host;
  std::string port;
};

// "127.0.0.1:9400", "[::1]:9400", "localhost:9400"; nullopt for anything else. Thread-safe.
std::optional<HostPort> split_address(const std::string& address);

// Whether only this machine reaches it. Thread-safe.
bool is_loopback(const sockaddr* address);

}  // namespace pudica::daemon
