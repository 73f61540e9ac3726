#include "daemon/listener.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <grp.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/tcp_address.h"
#include "inspect/socket_trust.h"
#include "inspect/user_names.h"

namespace pudica::daemon {
namespace {

constexpr int kBacklog = 512;
constexpr int kFirstInherited = 3;

Error unavailable(const std::string& what) {
  return {ErrorCode::kUnavailable, what + ": " + std::strerror(errno)};
}

struct Rights {
  gid_t group = static_cast<gid_t>(-1);  // -1: as it is
  mode_t socket = 0600;
  mode_t directory = 0700;
};

Result<Rights> rights_of(const std::string& group) {
  if (group.empty()) return Rights{};
  const ::group* const found = ::getgrnam(group.c_str());
  if (found == nullptr) {
    return invalid_argument("socket group '" + group + "': no such group on this machine");
  }
  return Rights{found->gr_gid, 0660, 0750};
}

// Whether the last part of the path is a directory that belongs to pudica alone.
bool is_own_directory(const std::filesystem::path& directory) {
  const std::string name = directory.filename().string();
  return name == "pudica" || name.starts_with("pudica-");
}

Result<void> prepare_directory(const std::filesystem::path& directory, const Rights& rights) {
  std::error_code failed;
  const bool made = !std::filesystem::exists(directory, failed);
  if (made) {
    const mode_t before = ::umask(0077);
    std::filesystem::create_directories(directory, failed);
    ::umask(before);
    if (failed) {
      return Error{ErrorCode::kUnavailable,
                   "directory " + directory.string() + ": " + failed.message()};
    }
  }
  struct stat status {};
  if (::lstat(directory.c_str(), &status) != 0) return unavailable(directory.string());
  if (!made && !is_own_directory(directory)) {
    // What clients of this user would stay away from.
    const std::string fault = SocketTrust::from_environment().directory_fault(directory);
    return fault.empty() ? Result<void>() : Error{ErrorCode::kUnavailable, fault};
  }
  if (S_ISDIR(status.st_mode) && status.st_uid != ::geteuid()) {
    return Error{ErrorCode::kUnavailable, "directory " + directory.string() + " belongs to user " +
                                              user_name(status.st_uid) + ", expected " +
                                              user_name(::geteuid())};
  }
  if (!S_ISDIR(status.st_mode)) {
    return Error{ErrorCode::kUnavailable,
                 directory.string() + " is not a directory, expected one of this user"};
  }
  if (rights.group != static_cast<gid_t>(-1) &&
      ::chown(directory.c_str(), static_cast<uid_t>(-1), rights.group) != 0) {
    return unavailable("group of " + directory.string());
  }
  if (::chmod(directory.c_str(), rights.directory) != 0) {
    return unavailable("rights of " + directory.string());
  }
  return {};
}

sockaddr_un unix_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

// The process that listens on the socket; 0: nobody, -1: somebody who does not say.
pid_t listening_process(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return 0;
  const sockaddr_un address = unix_address(path);
  pid_t pid = 0;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) {
    const auto peer = peer_credentials(fd);
    pid = peer && peer->process > 0 ? peer->process : -1;
  } else if (errno == EAGAIN) {
    pid = -1;  // alive, and busy
  }
  ::close(fd);
  return pid;
}

Error already_there(const std::string& path, pid_t pid) {
  std::string who = pid > 0 ? " (process " + std::to_string(pid) + ")" : std::string();
  return {ErrorCode::kUnavailable, "a daemon listens on " + path + " already" + who +
                                       "; stop it, or choose another --socket"};
}

Result<void> remove_stale(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return unavailable(path);
  }
  if (!S_ISSOCK(status.st_mode)) {
    return Error{ErrorCode::kUnavailable, path + " exists and is not a socket; expected nothing"};
  }
  if (const pid_t pid = listening_process(path); pid != 0) return already_there(path, pid);
  if (::unlink(path.c_str()) != 0) return unavailable("stale socket " + path);
  return {};
}

Result<int> bind_unix(const std::string& path, const Rights& rights) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return unavailable("socket");
  const sockaddr_un address = unix_address(path);
  const mode_t before = ::umask(0177);
  const bool bound = ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int code = errno;
  ::umask(before);
  errno = code;
  const bool shared = bound && (rights.group == static_cast<gid_t>(-1) ||
                                (::chown(path.c_str(), static_cast<uid_t>(-1), rights.group) == 0 &&
                                 ::chmod(path.c_str(), rights.socket) == 0));
  if (shared && ::listen(fd, kBacklog) == 0) return fd;
  const Error error = unavailable("socket " + path);
  ::close(fd);
  return error;
}

Error not_loopback(const std::string& address) {
  return invalid_argument("listen address '" + address +
                          "' is not loopback: everybody who reaches it could read all runs; say "
                          "--allow-remote too if that is meant");
}

Result<int> bind_tcp(const addrinfo& info, const std::string& name) {
  const int fd =
      ::socket(info.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, info.ai_protocol);
  if (fd < 0) return unavailable("socket for " + name);
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (::bind(fd, info.ai_addr, info.ai_addrlen) == 0 && ::listen(fd, kBacklog) == 0) return fd;
  const Error error = unavailable("listen address " + name);
  ::close(fd);
  return error;
}

// With the port that was chosen where 0 was asked for.
std::string name_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  if (::getsockname(fd, plain, &size) != 0 ||
      ::getnameinfo(plain, size, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "unknown";
  }
  const bool six = address.ss_family == AF_INET6;
  return (six ? "[" + std::string(host) + "]" : std::string(host)) + ":" + port;
}

}  // namespace

Listeners::~Listeners() {
  for (const ListenSocket& socket : sockets_) ::close(socket.fd);
  for (const std::string& path : made_) ::unlink(path.c_str());
}

Result<void> Listeners::add_unix(const std::string& path, const std::string& group) {
  constexpr std::size_t kMost = sizeof(sockaddr_un{}.sun_path) - 1;
  if (path.empty() || path.size() > kMost || path.find('\0') != std::string::npos) {
    return invalid_argument("socket path '" + path + "' has " + std::to_string(path.size()) +
                            " characters, expected 1 to " + std::to_string(kMost));
  }
  const auto rights = rights_of(group);
  if (!rights) return rights.error();
  const auto directory = std::filesystem::absolute(path).parent_path();
  if (auto ready = prepare_directory(directory, *rights); !ready) return ready;
  auto lock = FileLock::try_take(path + ".lock");
  if (!lock) return lock.error();
  if (!lock->held()) return already_there(path, listening_process(path));
  locks_.push_back(std::move(*lock));
  if (auto removed = remove_stale(path); !removed) return removed;
  const auto fd = bind_unix(path, *rights);
  if (!fd) return fd.error();
  made_.push_back(path);
  sockets_.push_back({*fd, Transport::kUnix, path});
  return {};
}

Result<void> Listeners::add_tcp(const std::string& address, Remote remote) {
  const auto parts = split_address(address);
  if (!parts) {
    return invalid_argument("listen address '" + address +
                            "': expected ADDRESS:PORT such as 127.0.0.1:9400 or [::1]:9400");
  }
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(parts->host.c_str(), parts->port.c_str(), &hints, &found) != 0) {
    return invalid_argument("listen address '" + address +
                            "': expected a numeric address such as 127.0.0.1:9400");
  }
  const bool allowed = remote == Remote::kAllowed || is_loopback(found->ai_addr);
  const auto fd = allowed ? bind_tcp(*found, address) : Result<int>(not_loopback(address));
  ::freeaddrinfo(found);
  if (!fd) return fd.error();
  sockets_.push_back({*fd, Transport::kTcp, name_of(*fd)});
  return {};
}

Result<void> Listeners::add_systemd(Remote remote) {
  const char* const pid = std::getenv("LISTEN_PID");
  const char* const count_text = std::getenv("LISTEN_FDS");
  if (pid == nullptr || count_text == nullptr || pid != std::to_string(::getpid())) return {};
  const int count = std::clamp(std::atoi(count_text), 0, 16);
  ::unsetenv("LISTEN_PID");
  ::unsetenv("LISTEN_FDS");
  ::unsetenv("LISTEN_FDNAMES");
  for (int i = 0; i < count; ++i) {
    if (auto added = add_inherited(kFirstInherited + i, remote); !added) return added;
  }
  return {};
}

Result<void> Listeners::add_inherited(int fd, Remote remote) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return unavailable("inherited file descriptor " + std::to_string(fd));
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
  if (address.ss_family == AF_UNIX) {
    const auto* const named = reinterpret_cast<const sockaddr_un*>(&address);
    sockets_.push_back({fd, Transport::kUnix, named->sun_path});
    return {};
  }
  const std::string name = name_of(fd);
  if (remote == Remote::kRefused && !is_loopback(reinterpret_cast<const sockaddr*>(&address))) {
    return not_loopback(name);
  }
  sockets_.push_back({fd, Transport::kTcp, name});
  return {};
}

bool Listeners::has(Transport transport) const {
  return std::ranges::any_of(
      sockets_, [transport](const ListenSocket& socket) { return socket.transport == transport; });
}

}  // namespace pudica::daemon
