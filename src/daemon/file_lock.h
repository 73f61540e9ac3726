// A file that is locked for as long as its owner lives: of two daemons only one goes on.
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include "pudica/result.h"

namespace pudica::daemon {

// Movable; the lock goes with it, and with the process however that ends. Not thread-safe.
class FileLock {
 public:
  FileLock() = default;
  ~FileLock();
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  // Makes the file (0600) where it is missing, locks it and writes this process's number into it.
  // Not held: another process has it. Errors: kUnavailable naming the file where it cannot be
  // opened.
  static Result<FileLock> try_take(const std::string& path);

  [[nodiscard]] bool held() const { return fd_ >= 0; }

 private:
  explicit FileLock(int fd) : fd_(fd) {}

  int fd_ = -1;
};

// The process that wrote its number into the lock; nullopt: it says none.
std::optional<pid_t> owner_of_lock(const std::string& path);

// Locks "<database>.lock" beside the file itself, also where `database` is a symbolic link. Makes
// missing directories (0700). Errors: kUnavailable, also where another daemon has it, naming the
// database and that process.
Result<FileLock> lock_database(const std::string& database);

}  // namespace pudica::daemon
