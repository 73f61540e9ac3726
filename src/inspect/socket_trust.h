// Whom to trust at the daemon's UNIX socket: one rule for clients, for pudicad and for `doctor`.
#pragma once

#include <optional>
#include <string>

namespace pudica {

struct PeerCredentials {
  int process = 0;  // 0: in no namespace that is visible from here
  unsigned user_id = 0;
  bool operator==(const PeerCredentials&) const = default;
};

// Of the other end of a connected UNIX socket, as the kernel says: of a listener, those of whoever
// called listen(). nullopt: the kernel says none. Thread-safe.
std::optional<PeerCredentials> peer_credentials(int socket);

// A user trusts itself and root, and one more user where that is said: naming a socket does not
// make its owner trusted. Every fault is one line: what belongs to whom, and who was expected;
// empty where there is none. What does not exist has no fault. Thread-safe: a value.
class SocketTrust {
 public:
  // `also`: a user of this machine, by name or number, that is trusted too; empty: none.
  explicit SocketTrust(const std::string& also = {});
  // With the user that PUDICA_DAEMON_USER names.
  static SocketTrust from_environment();

  [[nodiscard]] bool trusts(unsigned user_id) const;
  // Of a directory that holds a socket: its owner, and whether others may put another there.
  [[nodiscard]] std::string directory_fault(const std::string& directory) const;
  // Of a socket's path: its directory and its owner.
  [[nodiscard]] std::string path_fault(const std::string& path) const;
  // Of whoever listens at the other end of a connection. Nothing need be sent before.
  [[nodiscard]] std::string peer_fault(int socket) const;

 private:
  [[nodiscard]] std::string owner_fault(const std::string& what, unsigned owner) const;
  [[nodiscard]] std::string owners_fault(const std::string& what, const std::string& path) const;

  std::optional<unsigned> also_;
  std::string unknown_;  // what was said and is no user
};

}  // namespace pudica
