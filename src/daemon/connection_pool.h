// Threads for connections: one each, started on demand, a few kept for the next ones.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <pthread.h>
#include <set>
#include <vector>

namespace pudica::daemon {

// The HTTP library's own pool has as many threads as there are cores, and every long poll would
// hold one. Thread-safe.
class ConnectionPool {
 public:
  // Serves a connection and leaves it open; the pool closes it. Must not throw.
  using Serve = std::function<void(int fd)>;

  ConnectionPool(std::size_t most, Serve serve);
  ~ConnectionPool();
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;

  // Takes the connection over. False (the caller keeps it): as many as allowed are open already.
  [[nodiscard]] bool submit(int fd);
  // Shuts all connections down and waits for their threads. Later submits are refused.
  void stop();
  [[nodiscard]] std::size_t open() const;

 private:
  static void* entry(void* self);
  void work();
  bool start_thread();
  std::vector<pthread_t> take_finished();

  std::size_t most_;
  Serve serve_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable left_;
  std::deque<int> queue_;
  std::set<int> open_;
  std::size_t idle_ = 0;
  std::size_t threads_ = 0;
  std::vector<pthread_t> finished_;  // to be joined
  bool stopping_ = false;
};

}  // namespace pudica::daemon
