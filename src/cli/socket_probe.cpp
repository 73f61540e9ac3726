#include "cli/socket_probe.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

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

void look_at_listener(int descriptor, SocketProbe& probe) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(descriptor, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return;
  probe.listener_process = peer.pid;
  const std::string command = command_of(peer.pid);
  probe.listener = (command.empty() ? "a process" : command) + " of " + user_name(peer.uid);
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

void connect_once(const std::string& path, SocketProbe& probe) {
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
    look_at_listener(client.number(), probe);
    return;
  }
  probe.state = state_of(code);
  probe.problem = std::strerror(code);
}

}  // namespace

std::string user_name(unsigned user_id) {
  const passwd* const entry = getpwuid(user_id);
  return entry != nullptr ? entry->pw_name : "user " + std::to_string(user_id);
}

SocketProbe probe_socket(const std::string& path) {
  SocketProbe probe;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  probe.directory = parent.empty() ? "." : parent;
  struct stat status {};
  if (stat(probe.directory.c_str(), &status) == 0) {
    probe.directory_mode = status.st_mode & kPermissions;
    probe.directory_owner = user_name(status.st_uid);
    probe.directory_foreign = status.st_uid != geteuid() && status.st_uid != 0;
  } else if (errno == ENOENT) {
    probe.state = SocketProbe::State::kNoDirectory;
    return probe;
  }
  if (stat(path.c_str(), &status) == 0) {
    probe.mode = status.st_mode & kPermissions;
    probe.owner = user_name(status.st_uid);
    if (!S_ISSOCK(status.st_mode)) {
      probe.state = SocketProbe::State::kNotASocket;
      return probe;
    }
  }
  connect_once(path, probe);
  return probe;
}

}  // namespace pudica::cli
