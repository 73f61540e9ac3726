#include "daemon/file_lock.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <unistd.h>
#include <utility>

#include "daemon/private_directory.h"

namespace pudica::daemon {

FileLock::~FileLock() {
  if (fd_ >= 0) ::close(fd_);
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  fd_ = std::exchange(other.fd_, -1);
  return *this;
}

Result<FileLock> FileLock::try_take(const std::string& path) {
  FileLock lock(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  const auto refused = [&path] {
    return Error{ErrorCode::kUnavailable, "lock '" + path + "': " + std::strerror(errno)};
  };
  if (!lock.held()) return refused();
  if (::flock(lock.fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return FileLock();
    return refused();
  }
  // For whoever finds it locked; nothing hangs on it.
  const std::string number = std::to_string(::getpid()) + "\n";
  [[maybe_unused]] const bool emptied = ::ftruncate(lock.fd_, 0) == 0;
  [[maybe_unused]] const ssize_t written = ::pwrite(lock.fd_, number.data(), number.size(), 0);
  return lock;
}

std::optional<pid_t> owner_of_lock(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return std::nullopt;
  std::array<char, 32> text{};
  const ssize_t size = ::read(fd, text.data(), text.size());
  ::close(fd);
  pid_t pid = 0;
  const auto [rest, status] =
      std::from_chars(text.data(), text.data() + std::max(size, ssize_t{0}), pid);
  if (status != std::errc() || *rest != '\n' || pid <= 0) return std::nullopt;
  return pid;
}

Result<FileLock> lock_database(const std::string& database) {
  std::error_code failed;
  const auto file = std::filesystem::weakly_canonical(database, failed);
  if (failed) {
    return Error{ErrorCode::kUnavailable, "database '" + database + "': " + failed.message()};
  }
  if (auto made = make_private_directories(file.parent_path()); !made) return made.error();
  const std::string name = file.string() + ".lock";
  auto lock = FileLock::try_take(name);
  if (!lock || lock->held()) return lock;
  const auto owner = owner_of_lock(name);
  const std::string who = owner ? " (process " + std::to_string(*owner) + ")" : std::string();
  return Error{ErrorCode::kUnavailable, "database '" + database + "': a daemon uses it already" +
                                            who + "; stop it, or choose another --database"};
}

}  // namespace pudica::daemon
