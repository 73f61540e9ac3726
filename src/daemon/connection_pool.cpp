#include "daemon/connection_pool.h"

#include <chrono>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace pudica::daemon {
namespace {

constexpr std::size_t kStackBytes = std::size_t{512} << 10U;
constexpr std::chrono::seconds kIdle{1};
constexpr std::chrono::milliseconds kGrace{400};
// Each holds a thread and a descriptor for the moment until it is closed.
constexpr std::size_t kMostDismissed = 64;

}  // namespace

ConnectionPool::ConnectionPool(std::size_t most, Serve serve, Dismiss dismiss)
    : most_(most), serve_(std::move(serve)), dismiss_(std::move(dismiss)) {}

ConnectionPool::~ConnectionPool() { stop(); }

bool ConnectionPool::submit(int fd) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return false;
  if (open_.size() - dismissed_ >= most_ && !make_room()) return false;
  if (idle_ <= queue_.size() && !start_thread()) return false;
  open_[fd] = {++arrivals_, State::kIdle};
  queue_.push_back(fd);
  work_.notify_one();
  return true;
}

bool ConnectionPool::begin(int fd) {
  const std::lock_guard lock(mutex_);
  Connection& connection = open_[fd];
  if (connection.state == State::kDismissed) return false;
  connection.state = State::kBusy;
  return true;
}

// With mutex_ held.
bool ConnectionPool::make_room() {
  if (dismissed_ >= kMostDismissed) return false;
  auto longest = open_.end();
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    if (it->second.state != State::kIdle) continue;
    if (longest == open_.end() || it->second.number < longest->second.number) longest = it;
  }
  if (longest == open_.end()) return false;
  longest->second.state = State::kDismissed;
  ++dismissed_;
  dismiss_(longest->first);
  ::shutdown(longest->first, SHUT_RDWR);
  return true;
}

void ConnectionPool::set_most(std::size_t most) {
  const std::lock_guard lock(mutex_);
  most_ = most;
}

void ConnectionPool::stop() {
  std::vector<pthread_t> finished;
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    // Who waits for a request stops waiting; who has an answer gets to send it.
    for (const auto& [fd, connection] : open_) ::shutdown(fd, SHUT_RD);
    work_.notify_all();
    const auto ended = [this] { return threads_ == 0; };
    if (!left_.wait_for(lock, kGrace, ended)) {
      for (const auto& [fd, connection] : open_) ::shutdown(fd, SHUT_RDWR);
      left_.wait(lock, ended);
    }
    finished = take_finished();
  }
  for (const pthread_t thread : finished) pthread_join(thread, nullptr);
}

std::size_t ConnectionPool::open() const {
  const std::lock_guard lock(mutex_);
  return open_.size() - dismissed_;
}

void* ConnectionPool::entry(void* self) {
  static_cast<ConnectionPool*>(self)->work();
  return nullptr;
}

// With mutex_ held.
bool ConnectionPool::start_thread() {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread{};
  const bool started = pthread_create(&thread, &attributes, &ConnectionPool::entry, this) == 0;
  pthread_attr_destroy(&attributes);
  threads_ += started ? 1 : 0;
  return started;
}

// With mutex_ held.
std::vector<pthread_t> ConnectionPool::take_finished() { return std::exchange(finished_, {}); }

void ConnectionPool::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    ++idle_;
    const bool woken = work_.wait_for(lock, kIdle, [this] { return stopping_ || !queue_.empty(); });
    --idle_;
    if (!woken || queue_.empty()) break;
    const int fd = queue_.front();
    queue_.pop_front();
    lock.unlock();
    serve_(*this, fd);
    lock.lock();
    const auto served = open_.find(fd);
    dismissed_ -= served->second.state == State::kDismissed ? 1 : 0;
    open_.erase(served);
    ::close(fd);  // with the lock: stop() must not shut down a number that is used again
  }
  // Each joins those before it, stop() the last: who accepts connections waits for no thread.
  const std::vector<pthread_t> before = take_finished();
  finished_.push_back(pthread_self());
  --threads_;
  left_.notify_all();
  lock.unlock();
  for (const pthread_t thread : before) pthread_join(thread, nullptr);
}

}  // namespace pudica::daemon
