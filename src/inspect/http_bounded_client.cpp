#include "inspect/http_bounded_client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <poll.h>
#include <string_view>
#include <sys/socket.h>

namespace pudica::http {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostReplyBytes = std::size_t{64} << 20U;
constexpr std::size_t kMostHeadBytes = std::size_t{64} << 10U;

// Reads in blocks: the library asks for headers byte by byte.
class BoundedStream final : public httplib::Stream {
 public:
  BoundedStream(socket_t socket, Clock::time_point deadline, const std::atomic<bool>& stopped,
                std::string& fault)
      : socket_(socket), deadline_(deadline), stopped_(stopped), fault_(fault) {}

  [[nodiscard]] bool is_readable() const override { return read_ < held_ || wait(POLLIN) == 0; }
  [[nodiscard]] bool is_writable() const override { return wait(POLLOUT) == 0; }

  ssize_t read(char* out, std::size_t size) override {
    if (read_ == held_) {
      const ssize_t got = fill();
      if (got <= 0) return got;
    }
    const std::size_t count = std::min(size, held_ - read_);
    std::copy_n(block_.data() + read_, count, out);
    read_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* data, std::size_t size) override {
    for (;;) {
      const ssize_t sent = ::send(socket_, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) return sent;
      if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) return -1;
      if (wait(POLLOUT) != 0) return -1;
    }
  }

  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  [[nodiscard]] socket_t socket() const override { return socket_; }

 private:
  ssize_t fill() {
    for (;;) {
      if (wait(POLLIN) != 0) return -1;
      const ssize_t got = ::recv(socket_, block_.data(), block_.size(), MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) continue;
      if (got <= 0) return got;
      read_ = 0;
      held_ = static_cast<std::size_t>(got);
      return within_bounds() ? got : -1;
    }
  }

  bool within_bounds() {
    constexpr std::string_view kEndOfHead = "\r\n\r\n";
    total_ += held_;
    for (std::size_t i = 0; i < held_ && end_seen_ < kEndOfHead.size(); ++i) {
      const bool expected = block_[i] == kEndOfHead[end_seen_];
      end_seen_ = expected ? end_seen_ + 1 : (block_[i] == '\r' ? 1 : 0);
    }
    const std::size_t most = end_seen_ < kEndOfHead.size() ? kMostHeadBytes : kMostReplyBytes;
    if (total_ <= most) return true;
    fault_ = "the reply is longer than " + std::to_string(most) + " bytes";
    return false;
  }

  // 0 once the socket is ready.
  [[nodiscard]] int wait(short events) const {
    for (;;) {
      if (stopped_) return -1;
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now()).count();
      if (left <= 0) {
        fault_ = "it took too long";
        return -1;
      }
      pollfd poller{socket_, events, 0};
      const int ready = ::poll(&poller, 1, static_cast<int>(left));
      if (ready > 0) return 0;
      if (ready < 0 && errno != EINTR) return -1;
    }
  }

  socket_t socket_;
  Clock::time_point deadline_;
  const std::atomic<bool>& stopped_;
  std::string& fault_;
  std::array<char, 16384> block_{};
  std::size_t read_ = 0;
  std::size_t held_ = 0;
  std::size_t total_ = 0;
  std::size_t end_seen_ = 0;  // characters of the blank line after the head
};

}  // namespace

BoundedClient::BoundedClient(const std::string& socket_path, const SocketTrust& trust,
                             const std::atomic<bool>& stopped, std::chrono::milliseconds timeout)
    : httplib::ClientImpl(socket_path, 80),
      trust_(trust),
      stopped_(stopped),
      timeout_(timeout),
      deadline_(Clock::now() + timeout) {
  set_address_family(AF_UNIX);
  set_keep_alive(false);
  set_connection_timeout(timeout);
  set_default_headers({{"Host", "pudica"}});
}

bool BoundedClient::process_socket(const Socket& socket,
                                   std::function<bool(httplib::Stream& stream)> callback) {
  distrust_ = trust_.peer_fault(socket.sock);
  if (!distrust_.empty()) return false;
  BoundedStream stream(socket.sock, deadline_, stopped_, fault_);
  const bool done = callback(stream);
  if (!done && fault_ == "it took too long") {
    fault_ += ": more than " + std::to_string(timeout_.count()) + " ms";
  }
  return done;
}

}  // namespace pudica::http
