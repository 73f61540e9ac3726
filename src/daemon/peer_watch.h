// Tells who works on a request that the other side has closed its connection.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <stop_token>
#include <thread>

#include "pudica/result.h"

namespace pudica::daemon {

// One thread of its own. Thread-safe.
class PeerWatch {
 public:
  PeerWatch() = default;
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  // Errors: kUnavailable where the system refuses.
  Result<void> start();
  void stop();

  // Watches a connection as long as it lives, which must not be longer than that of either.
  class [[nodiscard]] Watched {
   public:
    Watched(PeerWatch& watch, int fd) : watch_(watch), fd_(fd), number_(watch.add(fd, source_)) {}
    ~Watched() { watch_.remove(fd_, number_); }
    Watched(const Watched&) = delete;
    Watched& operator=(const Watched&) = delete;

    // Stop is requested once the other side has closed, or will send no more.
    [[nodiscard]] std::stop_token gone() const { return source_.get_token(); }

   private:
    PeerWatch& watch_;
    int fd_;
    std::stop_source source_;
    std::uint64_t number_;  // last: made from the source
  };

 private:
  std::uint64_t add(int fd, const std::stop_source& source);
  void remove(int fd, std::uint64_t number);
  void work();

  int epoll_ = -1;
  int wake_ = -1;  // an eventfd: stop() writes it
  std::thread thread_;
  std::mutex mutex_;
  std::uint64_t last_ = 0;  // numbers, since descriptors are used again
  std::map<std::uint64_t, std::stop_source> watched_;
};

}  // namespace pudica::daemon
