// Where the daemon listens: the UNIX socket and its rights, the TCP address, systemd's sockets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/api_reply.h"
#include "daemon/file_lock.h"
#include "pudica/result.h"

namespace pudica::daemon {

struct ListenSocket {
  int fd = -1;
  Transport transport = Transport::kUnix;
  std::string name;  // path, or address:port
};

// What is open is closed with it; a socket file that it made is removed. Not thread-safe.
class Listeners {
 public:
  Listeners() = default;
  ~Listeners();
  Listeners(const Listeners&) = delete;
  Listeners& operator=(const Listeners&) = delete;

  // A socket of mode 0600 (0660 with a group) in a directory of mode 0700 (0750), made where it is
  // missing. A file that nobody listens on is replaced. Errors: kInvalidArgument for a path that
  // cannot be, kUnavailable where a daemon listens already or the system refuses.
  Result<void> add_unix(const std::string& path, const std::string& group);
  // "127.0.0.1:9400", "[::1]:9400", "localhost:9400". Errors: as above; kInvalidArgument for an
  // address that is not loopback, unless `remote` allows it.
  enum class Remote : std::uint8_t { kRefused, kAllowed };
  Result<void> add_tcp(const std::string& address, Remote remote);
  // The sockets that systemd passed (LISTEN_PID, LISTEN_FDS); none where it did not.
  Result<void> add_systemd(Remote remote);

  [[nodiscard]] const std::vector<ListenSocket>& sockets() const { return sockets_; }
  [[nodiscard]] bool has(Transport transport) const;

 private:
  Result<void> add_inherited(int fd, Remote remote);

  std::vector<FileLock> locks_;
  std::vector<ListenSocket> sockets_;
  std::vector<std::string> made_;  // socket files
};

}  // namespace pudica::daemon
