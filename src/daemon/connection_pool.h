// Threads for a listener's connections: one each, started on demand, a few kept for the next ones.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <pthread.h>
#include <vector>

namespace pudica::daemon {

// The HTTP library's own pool has as many threads as there are cores, and every long poll would
// hold one. A connection is idle until begin(): where all are taken, a new one gets the place of
// the one that has been idle for longest. Thread-safe.
class ConnectionPool {
 public:
  // Serves a connection and leaves it open; the pool closes it. Must not throw.
  using Serve = std::function<void(ConnectionPool& pool, int fd)>;
  // Says to an idle connection that it goes; its Serve reads the end next. Must not wait.
  using Dismiss = std::function<void(int fd)>;

  ConnectionPool(std::size_t most, Serve serve, Dismiss dismiss);
  ~ConnectionPool();
  ConnectionPool(const ConnectionPool&) = delete;
  ConnectionPool& operator=(const ConnectionPool&) = delete;

  // Takes the connection over. False (the caller keeps it): as many as allowed are open already,
  // and none of them is idle.
  [[nodiscard]] bool submit(int fd);
  // For Serve, before it writes anything: the connection is idle no more. False: it was dismissed.
  [[nodiscard]] bool begin(int fd);
  // Fewer than there are: those that are open go on.
  void set_most(std::size_t most);
  // Shuts all connections down and waits for their threads. Later submits are refused.
  void stop();
  [[nodiscard]] std::size_t open() const;

 private:
  enum class State : std::uint8_t { kIdle, kBusy, kDismissed };
  struct Connection {
    std::uint64_t number = 0;  // in the order of arrival
    State state = State::kIdle;
  };

  static void* entry(void* self);
  void work();
  bool make_room();
  bool start_thread();
  std::vector<pthread_t> take_finished();

  std::size_t most_;
  Serve serve_;
  Dismiss dismiss_;
  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable left_;
  std::deque<int> queue_;
  std::map<int, Connection> open_;  // by descriptor
  std::size_t dismissed_ = 0;       // of those, still to be closed
  std::uint64_t arrivals_ = 0;
  std::size_t idle_ = 0;
  std::size_t threads_ = 0;
  std::vector<pthread_t> finished_;  // to be joined
  bool stopping_ = false;
};

}  // namespace pudica::daemon
