#include "daemon/config_check.h"

#include <filesystem>
#include <grp.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "daemon/tcp_address.h"

namespace pudica::daemon {
namespace {

// Empty: none.
std::string listen_fault(const DaemonConfig& config) {
  if (config.listen.empty()) return {};
  const std::string seen = "listen: '" + config.listen + "'";
  const auto parts = split_address(config.listen);
  if (!parts) return seen + ", expected ADDRESS:PORT such as 127.0.0.1:9400 or [::1]:9400";
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(parts->host.c_str(), parts->port.c_str(), &hints, &found) != 0) {
    return seen + ", expected a numeric address such as 127.0.0.1:9400";
  }
  const bool allowed = config.allow_remote || is_loopback(found->ai_addr);
  ::freeaddrinfo(found);
  if (allowed) return {};
  return seen +
         " is not loopback: everybody who reaches it could read all runs; expected a loopback "
         "address, or allow_remote (--allow-remote) too if that is meant";
}

std::string socket_fault(const DaemonConfig& config) {
  constexpr std::size_t kMost = sizeof(sockaddr_un{}.sun_path) - 1;
  if (config.socket.size() <= kMost) return {};
  return "socket: a path of " + std::to_string(config.socket.size()) +
         " characters, expected at most " + std::to_string(kMost);
}

std::string group_fault(const DaemonConfig& config) {
  if (config.socket_group.empty() || ::getgrnam(config.socket_group.c_str()) != nullptr) return {};
  return "socket_group: '" + config.socket_group + "', expected a group of this machine";
}

std::string database_fault(const DaemonConfig& config) {
  std::error_code ignored;
  if (config.database.empty() || !std::filesystem::is_directory(config.database, ignored)) {
    return {};
  }
  return "database: '" + config.database + "' is a directory, expected a file";
}

std::string level_fault(const DaemonConfig& config) {
  if (is_log_level(config.log_level)) return {};
  return "log_level: '" + config.log_level + "', expected off, error, warn, info or debug";
}

}  // namespace

std::vector<std::string> config_faults(const DaemonConfig& config) {
  std::vector<std::string> faults;
  for (auto* const check : {listen_fault, socket_fault, group_fault, database_fault, level_fault}) {
    if (std::string fault = check(config); !fault.empty()) faults.push_back(std::move(fault));
  }
  return faults;
}

}  // namespace pudica::daemon
