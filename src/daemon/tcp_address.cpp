#include "daemon/tcp_address.h"

#include <charconv>
#include <netinet/in.h>
#include <sys/socket.h>
#include <system_error>

namespace pudica::daemon {

std::optional<HostPort> split_address(const std::string& address) {
  const std::size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  HostPort out{address.substr(0, colon), address.substr(colon + 1)};
  if (out.host.starts_with('[') && out.host.ends_with(']')) {
    out.host = out.host.substr(1, out.host.size() - 2);
  } else if (out.host.find(':') != std::string::npos) {
    return std::nullopt;
  }
  if (out.host == "localhost") out.host = "127.0.0.1";
  constexpr unsigned kMostPort = 65535;
  unsigned port = 0;
  const char* const end = out.port.data() + out.port.size();
  const auto [rest, status] = std::from_chars(out.port.data(), end, port);
  if (status != std::errc() || rest != end || port > kMostPort) return std::nullopt;
  return out;
}

bool is_loopback(const sockaddr* address) {
  constexpr unsigned kLoopbackNet = 127;
  if (address->sa_family == AF_INET) {
    const auto* const four = reinterpret_cast<const sockaddr_in*>(address);
    return (ntohl(four->sin_addr.s_addr) >> 24U) == kLoopbackNet;
  }
  if (address->sa_family != AF_INET6) return false;
  const auto* const six = reinterpret_cast<const sockaddr_in6*>(address);
  return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr) != 0;
}

}  // namespace pudica::daemon
