#include "cli/socket_probe.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "inspect/user_names.h"

namespace pudica::cli {
namespace {

constexpr unsigned kPermissions = 07777;

// Closes the descriptor at the end.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int number() const { return number_; }

 private:
  int number_;
};

std::string command_of(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

void look_at_listener(int descriptor, const SocketTrust& trust, SocketProbe& probe) {
  if (probe.socket_fault.empty()) probe.socket_fault = trust.peer_fault(descriptor);
  const auto peer = peer_credentials(descriptor);
  if (!peer || peer->process <= 0) return;
  probe.listener_process = peer->process;
  const std::string command = command_of(peer->process);
  probe.listener = (command.empty() ? "a process" : command) + " of " + user_name(peer->user_id);
}

SocketProbe::State state_of(int code) {
  switch (code) {
    case ENOENT:
      return SocketProbe::State::kMissing;
    case ECONNREFUSED:
      return SocketProbe::State::kRefused;
    case EACCES:
    case EPERM:
      return SocketProbe::State::kDenied;
    case EAGAIN:  // its queue is full: somebody listens
      return SocketProbe::State::kListening;
    default:
      return SocketProbe::State::kOther;
  }
}

void connect_once(const std::string& path, const SocketTrust& trust, SocketProbe& probe) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    probe.problem = "the path has " + std::to_string(path.size()) +
                    " characters, expected at most " + std::to_string(sizeof(address.sun_path) - 1);
    return;
  }
  path.copy(address.sun_path, path.size());
  const Descriptor client(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const bool connected =
      client.number() >= 0 &&
      connect(client.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int code = errno;
  if (connected) {
    probe.state = SocketProbe::State::kListening;
    look_at_listener(client.number(), trust, probe);
    return;
  }
  probe.state = state_of(code);
  probe.problem = std::strerror(code);
}

}  // namespace

SocketProbe probe_socket(const std::string& path, const SocketTrust& trust) {
  SocketProbe probe;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  probe.directory = parent.empty() ? "." : parent;
  struct stat status {};
  if (stat(probe.directory.c_str(), &status) == 0) {
    probe.directory_mode = status.st_mode & kPermissions;
    probe.directory_owner = user_name(status.st_uid);
    probe.directory_fault = trust.directory_fault(probe.directory);
  } else if (errno == ENOENT) {
    probe.state = SocketProbe::State::kNoDirectory;
    return probe;
  }
  if (stat(path.c_str(), &status) == 0) {
    probe.mode = status.st_mode & kPermissions;
    probe.owner = user_name(status.st_uid);
    if (probe.directory_fault.empty()) probe.socket_fault = trust.path_fault(path);
    if ((status.st_mode & S_IWGRP) != 0) probe.sharing_group = group_name(status.st_gid);
    if (!S_ISSOCK(status.st_mode)) {
      probe.state = SocketProbe::State::kNotASocket;
      return probe;
    }
  }
  connect_once(path, trust, probe);
  return probe;
}

}  // namespace pudica::cli
