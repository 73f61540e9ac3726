#include "train/protocol.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <string_view>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "inspect/origin.h"

extern char** environ;

namespace pudica::train {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

Error unavailable(std::string message) {
  return Error{ErrorCode::kUnavailable, std::move(message)};
}

// Milliseconds to poll for; -1 for ever.
int poll_timeout_ms(steady_clock::time_point deadline, bool forever) {
  if (forever) return -1;
  const auto left = std::chrono::ceil<milliseconds>(deadline - steady_clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1'000'000'000));
}

// True when the descriptor is readable, false at the deadline. Interrupted calls go on.
bool wait_readable(int descriptor, steady_clock::time_point deadline, bool forever) {
  for (;;) {
    pollfd entry{descriptor, POLLIN, 0};
    const int ready = poll(&entry, 1, poll_timeout_ms(deadline, forever));
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (errno != EINTR) return true;  // let the read report it
  }
}

std::string describe_status(int status) {
  if (WIFEXITED(status)) return fmt::format("ended with exit code {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
  }
  return fmt::format("ended with wait status {}", status);
}

// NAME=value entries: ours first, then those inherited under other names.
std::vector<std::string> merged_environment(
    const std::vector<std::pair<std::string, std::string>>& changes) {
  std::vector<std::string> entries;
  entries.reserve(changes.size());
  for (const auto& change : changes) entries.push_back(change.first + "=" + change.second);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto name = text.substr(0, text.find('='));
    const bool changed = std::any_of(changes.begin(), changes.end(),
                                     [name](const auto& change) { return change.first == name; });
    if (!changed) entries.emplace_back(text);
  }
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// A socket pair above the descriptors that the child gets; closed on exec.
Result<std::array<int, 2>> make_sockets() {
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) {
    return unavailable(fmt::format("cannot make a socket pair: {}", strerror(errno)));
  }
  for (auto& descriptor : pair) {
    if (descriptor > kReplyDescriptor) continue;
    const int moved = fcntl(descriptor, F_DUPFD_CLOEXEC, kReplyDescriptor + 1);
    close(descriptor);
    descriptor = moved;
  }
  if (pair[0] < 0 || pair[1] < 0) return unavailable("cannot move a socket: too many open files");
  return pair;
}

// Returns 0 or an errno.
int spawn(const std::string& program, std::vector<std::string> arguments,
          std::vector<std::string> environment, int socket, pid_t& pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, socket, kCommandDescriptor);
  posix_spawn_file_actions_adddup2(&actions, socket, kReplyDescriptor);
  // What a library prints in a worker must not mix with the parent's tables.
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  const int status = posix_spawn(&pid, program.c_str(), &actions, &attributes,
                                 pointers(arguments).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return status;
}

constexpr milliseconds kExitGrace{2000};

}  // namespace

Result<void> LineStream::send(const nlohmann::json& message) {
  // Bytes that are not UTF-8 (in a message of the system) must not throw.
  auto text = message.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  text += '\n';
  std::string_view rest = text;
  while (!rest.empty()) {
    const auto sent = ::send(write_descriptor_, rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return unavailable(fmt::format("cannot send: {}", strerror(errno)));
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

LineStream::Fill LineStream::fill(steady_clock::time_point deadline, bool forever) {
  constexpr std::size_t kReadBytes = 65536;
  if (!wait_readable(read_descriptor_, deadline, forever)) return Fill::kTimeout;
  std::array<char, kReadBytes> chunk;  // NOLINT: filled by read
  const auto count = read(read_descriptor_, chunk.data(), chunk.size());
  if (count < 0 && errno == EINTR) return Fill::kData;
  if (count <= 0) return Fill::kEnd;
  buffer_.append(chunk.data(), static_cast<std::size_t>(count));
  return Fill::kData;
}

Result<nlohmann::json> LineStream::receive(milliseconds timeout) {
  const bool forever = timeout < milliseconds(0);
  const auto deadline = steady_clock::now() + (forever ? milliseconds(0) : timeout);
  timed_out_ = false;
  for (;;) {
    const auto end = buffer_.find('\n', scanned_bytes_);
    if (end != std::string::npos) {
      const auto line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      scanned_bytes_ = 0;
      auto message = nlohmann::json::parse(line, nullptr, false);
      if (!message.is_discarded()) return message;
      return Error{ErrorCode::kCorrupt,
                   fmt::format("'{}' seen, expected a line of JSON", line.substr(0, 80))};
    }
    scanned_bytes_ = buffer_.size();
    if (buffer_.size() > kMostLineBytes) {
      return Error{ErrorCode::kCorrupt,
                   fmt::format("a line of over {} bytes, expected at most that", kMostLineBytes)};
    }
    const auto filled = fill(deadline, forever);
    if (filled == Fill::kEnd) return unavailable("the other side closed the connection");
    if (filled == Fill::kTimeout) {
      timed_out_ = true;
      return unavailable(fmt::format("no answer within {} ms", timeout.count()));
    }
  }
}

Result<nlohmann::json> Channel::receive() { return stream_.receive(milliseconds(-1)); }

std::vector<std::pair<std::string, std::string>> worker_environment(std::int64_t threads) {
  auto environment = measuring_environment();
  environment.emplace_back("OMP_NUM_THREADS", std::to_string(threads));
  return environment;
}

Result<WorkerProcess> WorkerProcess::start(const WorkerStart& start) {
  const auto sockets = make_sockets();
  if (!sockets) return sockets.error();
  const auto [ours, theirs] = *sockets;
  std::string program = start.program.empty() ? "/proc/self/exe" : start.program;
  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), start.arguments.begin(), start.arguments.end());
  pid_t pid = -1;
  const int status = spawn(program, arguments, merged_environment(start.environment), theirs, pid);
  close(theirs);
  if (status != 0) {
    close(ours);
    return unavailable(fmt::format("cannot start '{}': {}", program, strerror(status)));
  }
  return WorkerProcess(pid, ours);
}

WorkerProcess::WorkerProcess(WorkerProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      stream_(std::move(other.stream_)),
      ending_(std::move(other.ending_)) {}

WorkerProcess& WorkerProcess::operator=(WorkerProcess&& other) noexcept {
  if (this == &other) return *this;
  kill();
  pid_ = std::exchange(other.pid_, -1);
  socket_ = std::exchange(other.socket_, -1);
  stream_ = std::move(other.stream_);
  ending_ = std::move(other.ending_);
  return *this;
}

WorkerProcess::~WorkerProcess() { kill(); }

void WorkerProcess::close_socket() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
}

void WorkerProcess::reap(milliseconds grace) {
  if (pid_ <= 0) return;
  // By number: glibc 2.36 declares pidfd_open without C linkage.
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (descriptor < 0 || !wait_readable(descriptor, steady_clock::now() + grace, false)) {
    ::kill(pid_, SIGKILL);
  }
  if (descriptor >= 0) close(descriptor);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  ending_ = "the worker " + describe_status(status);
  pid_ = -1;
}

void WorkerProcess::kill() {
  close_socket();
  reap(milliseconds(0));
}

Result<void> WorkerProcess::send(const nlohmann::json& command) {
  if (!alive()) return unavailable(ending_);
  if (stream_.send(command)) return {};
  close_socket();
  reap(kExitGrace);
  return unavailable(ending_);
}

Result<nlohmann::json> WorkerProcess::receive(milliseconds timeout) {
  if (!alive()) return unavailable(ending_);
  auto reply = stream_.receive(timeout);
  if (reply || stream_.timed_out()) return reply;
  close_socket();
  if (reply.error().code == ErrorCode::kCorrupt) {
    reap(milliseconds(0));
    return reply.error().with_context("the worker's reply");
  }
  reap(kExitGrace);
  return unavailable(ending_);
}

Result<nlohmann::json> WorkerProcess::ask(const nlohmann::json& command, milliseconds timeout) {
  const auto sent = send(command);
  if (!sent) return sent.error();
  return receive(timeout);
}

}  // namespace pudica::train
