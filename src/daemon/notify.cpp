#include "daemon/notify.h"

#include <cstddef>
#include <cstdlib>
#include <ctime>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace pudica::daemon {

bool notify_systemd(const std::string& message) {
  const char* const name = std::getenv("NOTIFY_SOCKET");
  if (name == nullptr) return true;
  const std::string path = name;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const bool abstract = path.starts_with('@');
  if (path.size() < 2 || path.size() >= sizeof(address.sun_path)) return false;
  path.copy(address.sun_path, path.size());
  if (abstract) address.sun_path[0] = '\0';
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  const ssize_t sent = ::sendto(fd, message.data(), message.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&address), size);
  ::close(fd);
  return sent == static_cast<ssize_t>(message.size());
}

std::string reloading_message() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  const long long micros = static_cast<long long>(now.tv_sec) * 1000000 + now.tv_nsec / 1000;
  return "RELOADING=1\nMONOTONIC_USEC=" + std::to_string(micros);
}

}  // namespace pudica::daemon
