// Parent and worker processes: the program starts itself again with `--worker` and talks to it in
// lines of JSON. The worker reads commands from descriptor 3 and answers on descriptor 4.
#pragma once

#include <chrono>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "pudica/result.h"

namespace pudica::train {

inline constexpr int kCommandDescriptor = 3;
inline constexpr int kReplyDescriptor = 4;

// Lines of JSON over two descriptors (may be one). Does not own them. Not thread-safe.
class LineStream {
 public:
  static constexpr std::size_t kMostLineBytes = std::size_t{64} << 20;

  LineStream(int read_descriptor, int write_descriptor)
      : read_descriptor_(read_descriptor), write_descriptor_(write_descriptor) {}

  // Errors: kUnavailable (the other side is gone).
  Result<void> send(const nlohmann::json& message);
  // The next message. A negative timeout waits for ever. Errors: kUnavailable (the other side is
  // gone, or the time is over: see timed_out), kCorrupt (not JSON, or a line beyond the bound).
  Result<nlohmann::json> receive(std::chrono::milliseconds timeout);
  // Whether the last receive() ended because of its timeout.
  [[nodiscard]] bool timed_out() const { return timed_out_; }

 private:
  enum class Fill { kData, kEnd, kTimeout };
  Fill fill(std::chrono::steady_clock::time_point deadline, bool forever);

  int read_descriptor_;
  int write_descriptor_;
  bool timed_out_ = false;
  std::string buffer_;
  std::size_t scanned_bytes_ = 0;  // of the buffer, known to hold no line end
};

// The worker's end.
class Channel {
 public:
  Channel() : stream_(kCommandDescriptor, kReplyDescriptor) {}

  // Waits for the next command. An error means that the parent is gone: end.
  Result<nlohmann::json> receive();
  Result<void> send(const nlohmann::json& reply) { return stream_.send(reply); }

 private:
  LineStream stream_;
};

struct WorkerStart {
  std::string program;                 // empty: this program itself
  std::vector<std::string> arguments;  // after the program's name
  // NAME, value; win over the inherited environment.
  std::vector<std::pair<std::string, std::string>> environment;
};

// What a worker's environment needs for fair timing: what every measurement runs under, and its
// number of threads.
std::vector<std::pair<std::string, std::string>> worker_environment(std::int64_t threads);

// One worker process, in a process group of its own so that Ctrl-C reaches the parent only. The
// destructor ends it. Not thread-safe.
class WorkerProcess {
 public:
  // Errors: kUnavailable.
  static Result<WorkerProcess> start(const WorkerStart& start);

  WorkerProcess(WorkerProcess&& other) noexcept;
  WorkerProcess& operator=(WorkerProcess&& other) noexcept;
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;
  ~WorkerProcess();

  // Errors: kUnavailable once the worker is gone.
  Result<void> send(const nlohmann::json& command);
  // The worker's next reply. After an error other than a timeout the worker has ended, and the
  // message says how. Errors: kUnavailable (died, or timeout), kCorrupt (its reply is not JSON).
  Result<nlohmann::json> receive(std::chrono::milliseconds timeout);
  // send() and receive().
  Result<nlohmann::json> ask(const nlohmann::json& command, std::chrono::milliseconds timeout);
  // Ends the worker at once and waits for it. Idempotent.
  void kill();

  [[nodiscard]] bool alive() const { return pid_ > 0; }
  // How it ended, in words; empty while it lives.
  [[nodiscard]] const std::string& ending() const { return ending_; }

 private:
  WorkerProcess(pid_t pid, int socket) : pid_(pid), socket_(socket), stream_(socket, socket) {}
  void reap(std::chrono::milliseconds grace);
  void close_socket();

  pid_t pid_ = -1;
  int socket_ = -1;
  LineStream stream_;
  std::string ending_;
};

}  // namespace pudica::train
