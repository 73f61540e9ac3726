#include "daemon/peer_watch.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace pudica::daemon {
namespace {

constexpr std::uint64_t kWakeUp = 0;  // no connection has this number

}  // namespace

PeerWatch::~PeerWatch() {
  stop();
  if (epoll_ >= 0) ::close(epoll_);
  if (wake_ >= 0) ::close(wake_);
}

Result<void> PeerWatch::start() {
  epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeUp;
  if (epoll_ < 0 || wake_ < 0 || ::epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) {
    return Error{ErrorCode::kUnavailable, std::string("epoll: ") + std::strerror(errno)};
  }
  thread_ = std::thread([this] { work(); });
  return {};
}

void PeerWatch::stop() {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_, &one, sizeof(one));
  thread_.join();
}

// A connection that cannot be watched is served all the same: it may wait longer than its peer.
std::uint64_t PeerWatch::add(int fd, const std::stop_source& source) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t number = ++last_;
  watched_.emplace(number, source);
  epoll_event event{};
  event.events = EPOLLRDHUP | EPOLLONESHOT;
  event.data.u64 = number;
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  return number;
}

void PeerWatch::remove(int fd, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  watched_.erase(number);
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
}

void PeerWatch::work() {
  constexpr int kAtOnce = 64;
  std::array<epoll_event, kAtOnce> events{};
  for (;;) {
    const int count = ::epoll_wait(epoll_, events.data(), kAtOnce, -1);
    if (count < 0 && errno != EINTR) return;
    for (int i = 0; i < count; ++i) {
      const std::uint64_t number = events[static_cast<std::size_t>(i)].data.u64;
      if (number == kWakeUp) return;
      std::stop_source source(std::nostopstate);
      {
        const std::lock_guard lock(mutex_);
        const auto found = watched_.find(number);
        if (found != watched_.end()) source = found->second;
      }
      source.request_stop();  // without the lock: it runs what waits for it
    }
  }
}

}  // namespace pudica::daemon
