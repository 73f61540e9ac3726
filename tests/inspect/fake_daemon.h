// FakeDaemon: answers a run's requests from memory, well or badly, without a socket.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "inspect/daemon_transport.h"
#include "inspect/run_protocol.h"

namespace pudica::testing {

// Thread-safe. Lives longer than the transports that it made.
class FakeDaemon {
 public:
  // Answers instead of the daemon where it returns something; may throw or block.
  using Interceptor = std::function<std::optional<Result<HttpReply>>(const std::string& target)>;

  explicit FakeDaemon(bool commands_wait = false) : commands_wait_(commands_wait) {}

  TransportMaker maker() {
    return
        [this]() -> std::unique_ptr<DaemonTransport> { return std::make_unique<Transport>(*this); };
  }
  void intercept(Interceptor interceptor) {
    const std::lock_guard lock(mutex_);
    interceptor_ = std::move(interceptor);
  }
  void answer_registrations(const Registration& registration) {
    const std::lock_guard lock(mutex_);
    registration_ = registration;
  }
  void command(const Command& command) {
    const std::lock_guard lock(mutex_);
    commands_.push_back(command);
    changed_.notify_all();
  }
  void offer_model(const std::string& state) {
    const std::lock_guard lock(mutex_);
    model_ = state;
  }
  // Knows no run any more, as after a restart.
  void forget_runs() {
    const std::lock_guard lock(mutex_);
    known_ = false;
    commands_.clear();
    changed_.notify_all();
  }

  std::vector<RunDescription> registrations() const {
    const std::lock_guard lock(mutex_);
    return registrations_;
  }
  std::vector<EventBatch> batches() const {
    const std::lock_guard lock(mutex_);
    return batches_;
  }
  template <typename Event>
  std::vector<Event> events() const {
    const std::lock_guard lock(mutex_);
    std::vector<Event> out;
    for (const EventBatch& batch : batches_) {
      for (const RunEvent& event : batch.events) {
        if (const auto* found = std::get_if<Event>(&event)) out.push_back(*found);
      }
    }
    return out;
  }
  std::vector<std::string> targets() const {
    const std::lock_guard lock(mutex_);
    return targets_;
  }
  std::size_t largest_body() const {
    const std::lock_guard lock(mutex_);
    return largest_body_;
  }
  // Waits until `condition` holds, looked at after every request. False: it never did in 10 s.
  bool wait_until(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    std::unique_lock lock(mutex_);
    for (;;) {
      lock.unlock();
      if (condition()) return true;
      lock.lock();
      if (std::chrono::steady_clock::now() > deadline) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(20));
    }
  }

 private:
  class Transport final : public DaemonTransport {
   public:
    explicit Transport(FakeDaemon& daemon) : daemon_(daemon) {}
    Result<HttpReply> get(const std::string& target, std::chrono::milliseconds) override {
      if (auto reply = daemon_.intercepted(target)) return *reply;
      if (target.starts_with("/v1/models/")) return daemon_.model();
      return daemon_.commands(target, *this);
    }
    Result<HttpReply> post(const std::string& target, const std::string& body,
                           std::chrono::milliseconds) override {
      if (auto reply = daemon_.intercepted(target)) return *reply;
      return target == "/v1/runs" ? daemon_.enroll(body) : daemon_.take(body);
    }
    void stop() override {
      const std::lock_guard lock(daemon_.mutex_);
      stopped = true;
      daemon_.changed_.notify_all();
    }
    bool stopped = false;  // guarded by the daemon's mutex

   private:
    FakeDaemon& daemon_;
  };

  static HttpReply unknown() {
    return {404, R"({"error":{"code":"not_found","message":"no such run"}})"};
  }

  std::optional<Result<HttpReply>> intercepted(const std::string& target) {
    Interceptor interceptor;
    {
      const std::lock_guard lock(mutex_);
      targets_.push_back(target);
      interceptor = interceptor_;
      changed_.notify_all();
    }
    return interceptor ? interceptor(target) : std::nullopt;
  }
  Result<HttpReply> enroll(const std::string& body) {
    const std::lock_guard lock(mutex_);
    auto description = parse_run_description(body);
    if (!description) return HttpReply{400, description.error().message};
    registrations_.push_back(std::move(*description));
    known_ = true;
    changed_.notify_all();
    return HttpReply{201, to_json(registration_)};
  }
  Result<HttpReply> take(const std::string& body) {
    const std::lock_guard lock(mutex_);
    if (!known_) return unknown();
    auto batch = parse_event_batch(body);
    if (!batch) return HttpReply{400, batch.error().message};
    largest_body_ = std::max(largest_body_, body.size());
    batches_.push_back(std::move(*batch));
    changed_.notify_all();
    return HttpReply{200, R"({"accepted":1})"};
  }
  Result<HttpReply> commands(const std::string& target, const Transport& transport) {
    const std::uint64_t after = std::stoull(target.substr(target.find("after=") + 6));
    std::unique_lock lock(mutex_);
    std::vector<Command> due;
    const auto look = [&] {
      due.clear();
      for (const Command& command : commands_) {
        if (command.seq > after) due.push_back(command);
      }
      return !due.empty() || !known_ || transport.stopped;
    };
    if (!look() && commands_wait_) changed_.wait_for(lock, std::chrono::seconds(25), look);
    if (transport.stopped) return Error{ErrorCode::kUnavailable, "stopped"};
    if (!known_) return unknown();
    return HttpReply{200, to_json(due)};
  }
  Result<HttpReply> model() {
    const std::lock_guard lock(mutex_);
    return HttpReply{200, R"({"fingerprint":"f","state":")" + model_ + R"("})"};
  }

  const bool commands_wait_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // All guarded by mutex_.
  Interceptor interceptor_;
  Registration registration_{"k3v9q2", kProtocol, std::nullopt, std::nullopt, 5, 15};
  bool known_ = false;
  std::vector<RunDescription> registrations_;
  std::vector<EventBatch> batches_;
  std::vector<Command> commands_;
  std::vector<std::string> targets_;
  std::string model_;
  std::size_t largest_body_ = 0;
};

}  // namespace pudica::testing
