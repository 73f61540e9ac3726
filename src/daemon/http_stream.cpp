#include "daemon/http_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>

namespace pudica::daemon {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kReadBytes = 16384;
// Chunk sizes and line ends beside the content of a chunked body.
constexpr std::size_t kFramingBytes = 65536;
constexpr std::size_t kDrainBytes = std::size_t{8} << 20U;
constexpr milliseconds kDrainTime{500};

// Whether `events` came before the deadline.
bool await(int fd, short events, std::chrono::steady_clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd waiting{fd, events, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(left.count()));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
  }
}

}  // namespace

HttpStream::HttpStream(int fd, const StreamLimits& limits) : fd_(fd), limits_(limits) {}

bool HttpStream::fail(int status, std::string message) {
  if (fault_.status == 0) fault_ = {status, std::move(message)};
  return false;
}

ssize_t HttpStream::receive(Clock::time_point deadline) {
  std::array<char, kReadBytes> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled
  for (;;) {
    const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got > 0) input_.append(buffer.data(), static_cast<std::size_t>(got));
    if (got >= 0) return got;
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return 0;  // reset: nobody to answer
    if (!await(fd_, POLLIN, deadline)) return -1;
  }
}

bool HttpStream::read_head() {
  const std::size_t most = (limits_.head.lines + 1) * (limits_.head.line_bytes + 2) + 2;
  std::size_t end = std::string::npos;
  std::size_t searched = 0;
  while (end == std::string::npos) {
    if (input_.size() > most) return fail(431, "the head of the request is too long");
    const ssize_t got = receive(began_ + limits_.head_time);
    if (got < 0) {
      return fail(408, "no complete request within " +
                           std::to_string(limits_.head_time.count() / 1000) + " s");
    }
    if (got == 0) return input_.empty() ? false : fail(400, "the request ends within its head");
    const std::size_t from = searched;
    const std::size_t found = end_of_head(std::string_view(input_).substr(from));
    if (found != std::string::npos) end = from + found;
    searched = input_.size() < 3 ? 0 : input_.size() - 3;
  }
  head_ = check_head(std::string_view(input_).substr(0, end), limits_.head);
  if (head_.status != 0) return fail(head_.status, head_.message);
  if (head_.content_length > limits_.body_bytes) {
    return fail(413, "the body has " + std::to_string(head_.content_length) +
                         " bytes, expected at most " + std::to_string(limits_.body_bytes));
  }
  head_left_ = head_.head.size();
  position_ = end;
  return true;
}

ssize_t HttpStream::read(char* out, std::size_t size) {
  if (fault_.status != 0) return -1;
  if (head_left_ > 0) {
    const std::size_t count = std::min(size, head_left_);
    head_.head.copy(out, count, head_.head.size() - head_left_);
    head_left_ -= count;
    return static_cast<ssize_t>(count);
  }
  if (position_ == input_.size()) {
    input_.clear();
    position_ = 0;
    const auto now = Clock::now();
    const ssize_t got = receive(std::min(now + limits_.stall_time, began_ + limits_.request_time));
    if (got < 0) fail(408, "the body of the request did not come in time");
    if (got <= 0) return got;
  }
  const std::size_t count = std::min(size, input_.size() - position_);
  if (body_taken_ + count > limits_.body_bytes + kFramingBytes) {
    fail(413, "the body has more than " + std::to_string(limits_.body_bytes) + " bytes");
    return -1;
  }
  input_.copy(out, count, position_);
  position_ += count;
  body_taken_ += count;
  return static_cast<ssize_t>(count);
}

ssize_t HttpStream::write(const char* data, std::size_t size) {
  if (fault_.status == 0) output_.append(data, size);
  return static_cast<ssize_t>(size);
}

void HttpStream::flush() {
  std::string_view left = output_;
  const auto end = Clock::now() + limits_.request_time;
  while (!left.empty()) {
    const ssize_t sent = ::send(fd_, left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) {
      left.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!await(fd_, POLLOUT, std::min(Clock::now() + limits_.stall_time, end))) return;
    } else if (errno != EINTR) {
      return;
    }
  }
  if (fault_.status == 413 || fault_.status == 431) drain();
}

void HttpStream::drain() {
  ::shutdown(fd_, SHUT_WR);
  const auto deadline = Clock::now() + kDrainTime;
  std::size_t dropped = 0;
  while (dropped < kDrainBytes && Clock::now() < deadline) {
    input_.clear();
    const ssize_t got = receive(deadline);
    if (got <= 0) return;
    dropped += static_cast<std::size_t>(got);
  }
}

void HttpStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void HttpStream::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

}  // namespace pudica::daemon
