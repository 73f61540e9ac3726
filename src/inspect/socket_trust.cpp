#include "inspect/socket_trust.h"

#include <cstdlib>
#include <filesystem>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inspect/user_names.h"

namespace pudica {

std::optional<PeerCredentials> peer_credentials(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
      peer.uid == static_cast<uid_t>(-1)) {
    return std::nullopt;
  }
  return PeerCredentials{peer.pid, peer.uid};
}

SocketTrust::SocketTrust(const std::string& also) {
  if (also.empty()) return;
  also_ = user_of_name(also);
  if (!also_) unknown_ = also;
}

SocketTrust SocketTrust::from_environment() {
  const char* const named = std::getenv("PUDICA_DAEMON_USER");
  return SocketTrust(named == nullptr ? std::string() : named);
}

bool SocketTrust::trusts(unsigned user_id) const {
  return user_id == ::geteuid() || user_id == 0 || user_id == also_;
}

std::string SocketTrust::owner_fault(const std::string& what, unsigned owner) const {
  if (trusts(owner)) return {};
  std::string expected = user_name(::geteuid());
  if (also_) expected += ", " + user_name(*also_);
  if (::geteuid() != 0) expected += " or root";
  return what + " user " + user_name(owner) + ", expected " + expected +
         "; PUDICA_DAEMON_USER=" + user_name(owner) + " says that you trust that user";
}

std::string SocketTrust::owners_fault(const std::string& what, const std::string& path) const {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  const std::string belongs = what + " " + path + " belongs to";
  std::string fault = owner_fault(belongs, status.st_uid);
  if (!fault.empty() || !S_ISLNK(status.st_mode)) return fault;
  if (::stat(path.c_str(), &status) != 0) return {};
  return owner_fault(belongs, status.st_uid);
}

std::string SocketTrust::directory_fault(const std::string& directory) const {
  std::string fault = owners_fault("directory", directory);
  if (!fault.empty()) return fault;
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return {};
  if ((status.st_mode & S_IWOTH) == 0 || (status.st_mode & S_ISVTX) != 0) return {};
  return "directory " + directory +
         " may be written by every user, who could put another socket there; expected mode 0700";
}

std::string SocketTrust::path_fault(const std::string& path) const {
  if (!unknown_.empty()) {
    return "PUDICA_DAEMON_USER: '" + unknown_ + "', expected a user of this machine";
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  std::string fault = directory_fault(parent.empty() ? "." : parent);
  return fault.empty() ? owners_fault("socket", path) : fault;
}

std::string SocketTrust::peer_fault(int socket) const {
  const auto peer = peer_credentials(socket);
  if (!peer) return "the kernel does not say who listens";
  const std::string who =
      peer->process > 0 ? "process " + std::to_string(peer->process) : "the process";
  return owner_fault(who + " that listens belongs to", peer->user_id);
}

}  // namespace pudica
