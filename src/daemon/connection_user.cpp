#include "daemon/connection_user.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "inspect/socket_trust.h"

namespace pudica::daemon {
namespace {

struct Endpoint {
  std::uint8_t family = AF_UNSPEC;
  std::uint16_t port = 0;                  // network order
  std::array<std::uint32_t, 4> address{};  // network order
};

// IPv4 within IPv6 as IPv4: so the kernel files it.
Endpoint endpoint_of(const sockaddr_storage& from) {
  Endpoint out;
  if (from.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(from);
    out = {AF_INET, four.sin_port, {four.sin_addr.s_addr}};
  } else if (from.ss_family == AF_INET6) {
    const auto& six = reinterpret_cast<const sockaddr_in6&>(from);
    out.port = six.sin6_port;
    std::memcpy(out.address.data(), &six.sin6_addr, sizeof(out.address));
    out.family = AF_INET6;
    if (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr) != 0) out = {AF_INET, out.port, {out.address[3]}};
  }
  return out;
}

struct Request {
  nlmsghdr head;
  inet_diag_req_v2 what;
};

Request request_for(const Endpoint& theirs, const Endpoint& ours) {
  Request request{};
  request.head.nlmsg_len = sizeof(request);
  request.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.head.nlmsg_flags = NLM_F_REQUEST;
  request.what.sdiag_family = theirs.family;
  request.what.sdiag_protocol = IPPROTO_TCP;
  request.what.idiag_states = ~0U;
  request.what.id.idiag_sport = theirs.port;
  request.what.id.idiag_dport = ours.port;
  std::memcpy(request.what.id.idiag_src, theirs.address.data(), sizeof(theirs.address));
  std::memcpy(request.what.id.idiag_dst, ours.address.data(), sizeof(ours.address));
  request.what.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  request.what.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  return request;
}

// The kernel answers one such question within the call that asks it (sock_diag(7)).
std::optional<unsigned> ask_kernel(const Request& request) {
  const int netlink = ::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
  if (netlink < 0) return std::nullopt;
  alignas(nlmsghdr) std::array<char, 8192> answer{};
  const bool asked = ::send(netlink, &request, sizeof(request), 0) == sizeof(request);
  const ssize_t size =
      asked ? ::recv(netlink, answer.data(), answer.size(), MSG_DONTWAIT) : ssize_t{-1};
  ::close(netlink);
  nlmsghdr head{};
  inet_diag_msg found{};
  if (size < static_cast<ssize_t>(NLMSG_HDRLEN + sizeof(found))) return std::nullopt;
  std::memcpy(&head, answer.data(), sizeof(head));
  if (head.nlmsg_type != SOCK_DIAG_BY_FAMILY) return std::nullopt;
  std::memcpy(&found, answer.data() + NLMSG_HDRLEN, sizeof(found));
  // Where there is no such connection, of another host say, the kernel shows who listens on a port
  // of that number instead.
  const bool is_connection = found.id.idiag_sport == request.what.id.idiag_sport &&
                             found.id.idiag_dport == request.what.id.idiag_dport;
  // A socket that no process has any more says root.
  if (!is_connection || found.idiag_inode == 0) return std::nullopt;
  return found.idiag_uid;
}

}  // namespace

std::optional<unsigned> connection_user(int socket) {
  sockaddr_storage ours{};
  sockaddr_storage theirs{};
  socklen_t size = sizeof(ours);
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&ours), &size) != 0) return std::nullopt;
  if (ours.ss_family == AF_UNIX) {
    const auto peer = peer_credentials(socket);
    return peer ? std::optional(peer->user_id) : std::nullopt;
  }
  size = sizeof(theirs);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&theirs), &size) != 0) return std::nullopt;
  const Endpoint from = endpoint_of(theirs);
  if (from.family == AF_UNSPEC) return std::nullopt;
  return ask_kernel(request_for(from, endpoint_of(ours)));
}

}  // namespace pudica::daemon
