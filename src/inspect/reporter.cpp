#include "inspect/reporter.h"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <pthread.h>
#include <random>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>

#include "base/log.h"
#include "inspect/daemon_link.h"

namespace pudica {
namespace {

bool switched_off() {
  const char* const value = std::getenv("PUDICA_DISABLE");
  return value != nullptr && std::string_view(value) == "1";
}

// Signals are the program's own business: the threads that start while this lives take none.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    blocked_ = pthread_sigmask(SIG_SETMASK, &all, &before_) == 0;
  }
  ~SignalsBlocked() {
    if (blocked_) pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
  bool blocked_ = false;
};

// Also of runs of one process that begin at once: the seed is of a coarse clock.
std::string random_name(std::uint64_t seed) {
  static std::atomic<std::uint64_t> count{0};
  std::seed_seq mixed{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32U),
                      static_cast<std::uint32_t>(++count)};
  return std::to_string(std::mt19937_64(mixed)());
}

class SocketTransport final : public DaemonTransport {
 public:
  explicit SocketTransport(const std::string& path) : client_(path) {}
  Result<HttpReply> get(const std::string& target, std::chrono::milliseconds timeout) override {
    return client_.get(target, timeout);
  }
  Result<HttpReply> post(const std::string& target, const std::string& json_body,
                         std::chrono::milliseconds timeout) override {
    auto reply = client_.post(target, json_body, timeout);
    // A daemon that is away is no news; somebody else in its place is, once.
    if (!client_.distrust().empty() && !warned_) {
      log_warn("this run reports nothing to " + client_.socket_path() + ": " + client_.distrust());
      warned_ = true;
    }
    return reply;
  }
  void stop() override { client_.stop(); }

 private:
  HttpClient client_;
  bool warned_ = false;
};

}  // namespace

std::unique_ptr<DaemonTransport> make_socket_transport(const std::string& socket_path) {
  return std::make_unique<SocketTransport>(socket_path);
}

class Reporter::Impl {
 public:
  explicit Impl(ReporterOptions options)
      : options_(std::move(options)), mailbox_(options_.queue_capacity), process_(getpid()) {}

  void start() {
    if (!options_.enabled) return mailbox_.stop_for_good("reporting is switched off");
    if (switched_off()) return mailbox_.stop_for_good("PUDICA_DISABLE=1");
    try {
      if (!options_.clock) options_.clock = [] { return std::chrono::steady_clock::now(); };
      if (!options_.transport) {
        options_.transport = [path = options_.socket_path] { return make_socket_transport(path); };
      }
      if (options_.seed == 0) {
        options_.seed = static_cast<std::uint64_t>(options_.clock().time_since_epoch().count() ^
                                                   (std::int64_t{process_} << 32));
      }
      if (options_.description.instance.empty()) {
        options_.description.instance = std::to_string(process_) + "-" + random_name(options_.seed);
      }
      to_send_ = options_.transport();
      to_poll_ = options_.transport();
      const SignalsBlocked blocked;
      threads_[0] = std::thread([this] { send_events(); });
      threads_[1] = std::thread([this] { take_commands(); });
      alive_ = true;
    } catch (const std::exception& error) {
      mailbox_.stop_for_good(std::string("no reporter: ") + error.what());
      close();
    }
  }

  // Joins the threads. Only once.
  void close() {
    alive_ = false;
    mailbox_.close();
    if (to_send_) to_send_->stop();
    if (to_poll_) to_poll_->stop();
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  // What the thread that trains calls: contained, and skipped where nobody reads it.
  template <typename Call, typename Value>
  Value contained(Value otherwise, Call&& call) noexcept {
    if (!alive_ || forked()) return otherwise;
    try {
      return call(mailbox_);
    } catch (...) {  // no memory: the record is lost, the step is not
      try {
        mailbox_.count_dropped();
      } catch (...) {
      }
    }
    return otherwise;
  }

  bool finish(const std::string& status, std::chrono::milliseconds timeout) {
    const bool sent = contained(false, [&](ReportMailbox& mailbox) {
      mailbox.put_end(status);
      return mailbox.wait_end_sent(timeout);
    });
    const bool was_alive = alive_;
    if (was_alive && !forked()) {
      if (!sent) mailbox_.stop_for_good("the run has ended");
      close();
    }
    return sent;
  }

  [[nodiscard]] ReportTime now() const { return options_.clock(); }
  ReportMailbox& mailbox() { return mailbox_; }
  [[nodiscard]] bool forked() const { return getpid() != process_; }

 private:
  [[nodiscard]] bool running() const { return !mailbox_.closing() && !mailbox_.status().stopped; }

  // Notes the exception, once in the log.
  void contain(const char* thread, const char* what) noexcept {
    try {
      const std::string text = std::string("the thread that ") + thread + ": " + what;
      mailbox_.thread_failed(text);
      if (!warned_.exchange(true)) log_warn(text + "; training is not affected");
    } catch (...) {  // nothing more to do, and nothing lost but a line
    }
  }

  void send_events() noexcept {
    constexpr std::chrono::seconds kAfterFailure{1};
    std::optional<EventLink> link;
    while (running()) {
      NextSend next{options_.clock() + kAfterFailure, false};
      try {
        if (!link) {
          link.emplace(options_.description,
                       LinkContext{*to_send_, mailbox_, options_.clock, options_.seed});
        }
        next = link->pump();
      } catch (const std::exception& error) {
        contain("sends events", error.what());
        if (link) next = link->after_failure(error.what());
      } catch (...) {
        contain("sends events", "an exception of unknown type");
        if (link) next = link->after_failure("an exception of unknown type");
      }
      mailbox_.wait_to_send(options_.clock(), next);
    }
  }

  void take_commands() noexcept {
    constexpr std::chrono::seconds kAfterFailure{1};
    std::optional<CommandLink> link;
    while (running()) {
      ReportTime next = options_.clock() + kAfterFailure;
      try {
        if (!link) {
          link.emplace(options_.description.fingerprint,
                       LinkContext{*to_poll_, mailbox_, options_.clock, options_.seed});
        }
        next = link->poll();
      } catch (const std::exception& error) {
        contain("takes commands", error.what());
        if (link) next = link->after_failure();
      } catch (...) {
        contain("takes commands", "an exception of unknown type");
        if (link) next = link->after_failure();
      }
      mailbox_.wait_to_poll(options_.clock(), next);
    }
  }

  ReporterOptions options_;
  ReportMailbox mailbox_;
  const pid_t process_;
  std::unique_ptr<DaemonTransport> to_send_;
  std::unique_ptr<DaemonTransport> to_poll_;
  std::thread threads_[2];
  std::atomic<bool> alive_{false};
  std::atomic<bool> warned_{false};
};

Reporter::Reporter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

std::unique_ptr<Reporter> Reporter::start(ReporterOptions options) {
  std::unique_ptr<Reporter> reporter(new Reporter(std::make_unique<Impl>(std::move(options))));
  reporter->impl_->start();
  return reporter;
}

Reporter::~Reporter() {
  if (impl_->forked()) {
    // The threads are the parent's, and what they wait for cannot be taken down without them.
    static_cast<void>(impl_.release());  // NOLINT(bugprone-unused-return-value): left alone
    return;
  }
  impl_->close();
}

void Reporter::step(StepEvent event) noexcept {
  impl_->contained(0, [&](ReportMailbox& mailbox) {
    mailbox.add_step(std::move(event));
    return 0;
  });
}

bool Reporter::wants_snapshot() const noexcept {
  return impl_->contained(
      false, [this](ReportMailbox& mailbox) { return mailbox.wants_snapshot(impl_->now()); });
}

void Reporter::snapshot(SnapshotOffer snapshot) noexcept {
  impl_->contained(0, [&](ReportMailbox& mailbox) {
    mailbox.put_snapshot(std::move(snapshot), impl_->now());
    return 0;
  });
}

bool Reporter::wants_model() const noexcept {
  return impl_->contained(
      false, [this](ReportMailbox& mailbox) { return mailbox.wants_model(impl_->now()); });
}

void Reporter::model(std::string state) noexcept {
  impl_->contained(0, [&](ReportMailbox& mailbox) {
    mailbox.put_model(std::move(state), impl_->now());
    return 0;
  });
}

void Reporter::mark_learned() noexcept {
  impl_->contained(0, [](ReportMailbox& mailbox) {
    mailbox.mark_learned();
    return 0;
  });
}

void Reporter::need(Bytes bytes) noexcept {
  impl_->contained(0, [bytes](ReportMailbox& mailbox) {
    mailbox.put_need(bytes);
    return 0;
  });
}

std::optional<BudgetOrder> Reporter::take_budget() noexcept {
  return impl_->contained(std::optional<BudgetOrder>(),
                          [](ReportMailbox& mailbox) { return mailbox.take_budget(); });
}

void Reporter::budget_applied(std::uint64_t seq, std::uint64_t step, Bytes bytes) noexcept {
  impl_->contained(0, [&](ReportMailbox& mailbox) {
    mailbox.add_budget({seq, step, bytes, std::nullopt});
    return 0;
  });
}

void Reporter::budget_changed(std::uint64_t step, Bytes bytes,
                              std::optional<double> fraction) noexcept {
  impl_->contained(0, [&](ReportMailbox& mailbox) {
    mailbox.add_budget({0, step, bytes, fraction});
    return 0;
  });
}

std::optional<std::string> Reporter::take_model() noexcept {
  return impl_->contained(std::optional<std::string>(),
                          [](ReportMailbox& mailbox) { return mailbox.take_model(); });
}

ReporterStatus Reporter::status() const noexcept {
  try {
    if (!impl_->forked()) return impl_->mailbox().status();
  } catch (...) {  // no memory for its texts
  }
  return {};
}

bool Reporter::wait_registered(std::chrono::milliseconds timeout) noexcept {
  return impl_->contained(
      false, [timeout](ReportMailbox& mailbox) { return mailbox.wait_registered(timeout); });
}

bool Reporter::finish(const std::string& status, std::chrono::milliseconds timeout) noexcept {
  try {
    return impl_->finish(status, timeout);
  } catch (...) {  // no memory: the daemon will miss the run by itself
    return false;
  }
}

}  // namespace pudica
