// Goal: whatever the daemon does, the thread that trains does not notice. Method: a daemon in
// memory that hangs, throws and forgets, with the reporter's real threads. Waits are for
// conditions.
#include "inspect/reporter.h"

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inspect/fake_daemon.h"

namespace pudica {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FakeDaemon;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Steady = std::chrono::steady_clock;

StepEvent step_event(std::uint64_t step) {
  StepEvent event;
  event.record.run = "train";
  event.record.step = step;
  event.record.key = ShapeKey{4, 64};
  return event;
}

ReporterOptions options_for(FakeDaemon& daemon) {
  ReporterOptions options;
  options.description.name = "train";
  options.transport = daemon.maker();
  options.seed = 3;
  return options;
}

Result<HttpReply> nobody() { return Error{ErrorCode::kUnavailable, "nobody listens"}; }

TEST(Reporter, ReportsARunFromBeginningToEnd) {
  FakeDaemon daemon(true);
  auto reporter = Reporter::start(options_for(daemon));
  ASSERT_TRUE(reporter->wait_registered(seconds(10)));
  EXPECT_EQ(reporter->status().id, "k3v9q2");
  for (std::uint64_t i = 1; i <= 300; ++i) reporter->step(step_event(i));
  EXPECT_TRUE(daemon.wait_until([&] { return daemon.events<StepEvent>().size() >= 256; }));
  EXPECT_TRUE(reporter->finish("ok", seconds(10)));
  EXPECT_THAT(daemon.events<StepEvent>(), SizeIs(300));
  ASSERT_THAT(daemon.events<EndEvent>(), SizeIs(1));
  EXPECT_EQ(daemon.events<EndEvent>()[0].status, "ok");
  EXPECT_TRUE(reporter->status().stopped);
  EXPECT_FALSE(reporter->finish("ok", seconds(10))) << "said already";
}

TEST(Reporter, ACommandArrivesAtOnceAndItsEffectIsToldAtOnce) {
  FakeDaemon daemon(true);
  auto reporter = Reporter::start(options_for(daemon));
  ASSERT_TRUE(reporter->wait_registered(seconds(10)));
  daemon.command({4, SetBudgetCommand{Bytes(123), "operator"}});
  std::optional<BudgetOrder> order;
  ASSERT_TRUE(daemon.wait_until([&] { return (order = reporter->take_budget()).has_value(); }));
  EXPECT_EQ(order->budget_bytes, Bytes(123));
  reporter->budget_applied(order->seq, 7, order->budget_bytes);
  ASSERT_TRUE(daemon.wait_until([&] { return !daemon.events<BudgetEvent>().empty(); }));
  EXPECT_EQ(daemon.events<BudgetEvent>()[0].seq, 4U);
  EXPECT_EQ(daemon.events<BudgetEvent>()[0].step, 7U);
}

TEST(Reporter, DoesNotWaitWhereNobodyListens) {
  FakeDaemon daemon;
  daemon.intercept([](const std::string&) { return nobody(); });
  auto reporter = Reporter::start(options_for(daemon));
  const auto begin = Steady::now();
  EXPECT_FALSE(reporter->wait_registered(seconds(60)));
  EXPECT_FALSE(reporter->finish("ok", seconds(60)));
  EXPECT_LT(Steady::now() - begin, seconds(20));
}

// A transport that answers nothing until it is stopped.
class HangingTransport final : public DaemonTransport {
 public:
  explicit HangingTransport(std::atomic<int>& asked) : asked_(asked) {}
  Result<HttpReply> get(const std::string&, milliseconds) override { return hang(); }
  Result<HttpReply> post(const std::string&, const std::string&, milliseconds) override {
    return hang();
  }
  void stop() override {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

 private:
  Result<HttpReply> hang() {
    std::unique_lock lock(mutex_);
    ++asked_;
    changed_.wait(lock, [this] { return stopped_; });
    return nobody();
  }
  std::atomic<int>& asked_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = false;
};

TEST(Reporter, ADaemonThatHangsHoldsNobodyUp) {
  std::atomic<int> asked{0};
  ReporterOptions options;
  options.transport = [&asked] { return std::make_unique<HangingTransport>(asked); };
  const auto begin = Steady::now();
  auto reporter = Reporter::start(std::move(options));
  EXPECT_FALSE(reporter->wait_registered(milliseconds(50)));
  for (std::uint64_t i = 0; i < 5000; ++i) {
    reporter->step(step_event(i));
    EXPECT_FALSE(reporter->wants_snapshot());
    EXPECT_FALSE(reporter->take_budget().has_value());
  }
  EXPECT_GE(reporter->status().dropped, 5000 - 1024);
  EXPECT_FALSE(reporter->finish("ok", milliseconds(50)));
  reporter.reset();
  EXPECT_LT(Steady::now() - begin, seconds(20));
  EXPECT_GE(asked, 1);
}

TEST(Reporter, GoesAwayWhileItsRequestsHang) {
  std::atomic<int> asked{0};
  ReporterOptions options;
  options.transport = [&asked] { return std::make_unique<HangingTransport>(asked); };
  auto reporter = Reporter::start(std::move(options));
  while (asked == 0) std::this_thread::yield();
  const auto begin = Steady::now();
  reporter.reset();
  EXPECT_LT(Steady::now() - begin, seconds(10));
}

// Throws once where the target contains `where`, then is as it should be.
void throw_once(FakeDaemon& daemon, const std::string& where, bool known_type) {
  auto thrown = std::make_shared<std::atomic<bool>>(false);
  daemon.intercept([=](const std::string& target) -> std::optional<Result<HttpReply>> {
    if (target.find(where) == std::string::npos || thrown->exchange(true)) return std::nullopt;
    if (known_type) throw std::runtime_error("thrown in the thread");
    throw 7;  // NOLINT(hicpp-exception-baseclass): the worst case
  });
}

TEST(Reporter, AnExceptionInTheSendingThreadIsContained) {
  for (const char* where : {"/v1/runs", "/events"}) {
    for (const bool known_type : {true, false}) {
      FakeDaemon daemon(true);
      throw_once(daemon, where, known_type);
      auto reporter = Reporter::start(options_for(daemon));
      reporter->step(step_event(1));
      reporter->need(Bytes(1));  // sent at once, and the step with it
      EXPECT_TRUE(daemon.wait_until([&] { return !daemon.events<StepEvent>().empty(); })) << where;
      EXPECT_EQ(reporter->status().failures, 1) << where;
      EXPECT_TRUE(reporter->finish("ok", seconds(10)));
    }
  }
}

TEST(Reporter, AnExceptionInTheCommandThreadIsContained) {
  for (const bool known_type : {true, false}) {
    FakeDaemon daemon(true);
    throw_once(daemon, "/commands", known_type);
    auto reporter = Reporter::start(options_for(daemon));
    daemon.command({1, SetBudgetCommand{Bytes(5), "operator"}});
    EXPECT_TRUE(daemon.wait_until([&] { return reporter->take_budget().has_value(); }));
    EXPECT_EQ(reporter->status().failures, 1);
  }
}

TEST(Reporter, WithoutATransportItIsIdleAndSaysWhy) {
  ReporterOptions options;
  options.transport = []() -> std::unique_ptr<DaemonTransport> {
    throw std::runtime_error("no descriptors left");
  };
  auto reporter = Reporter::start(std::move(options));
  reporter->step(step_event(1));
  EXPECT_FALSE(reporter->wait_registered(seconds(60)));
  EXPECT_TRUE(reporter->status().stopped);
  EXPECT_THAT(reporter->status().reason, HasSubstr("no descriptors left"));
}

TEST(Reporter, SwitchedOffItAsksNobody) {
  FakeDaemon daemon;
  auto off = options_for(daemon);
  off.enabled = false;
  EXPECT_FALSE(Reporter::start(std::move(off))->wait_registered(seconds(60)));
  setenv("PUDICA_DISABLE", "1", 1);
  auto reporter = Reporter::start(options_for(daemon));
  unsetenv("PUDICA_DISABLE");
  EXPECT_FALSE(reporter->wait_registered(seconds(60)));
  EXPECT_EQ(reporter->status().reason, "PUDICA_DISABLE=1");
  EXPECT_THAT(daemon.targets(), SizeIs(0));
}

TEST(Reporter, ReturnsToADaemonThatWasRestarted) {
  FakeDaemon daemon(true);
  auto reporter = Reporter::start(options_for(daemon));
  ASSERT_TRUE(reporter->wait_registered(seconds(10)));
  for (int restart = 1; restart <= 5; ++restart) {
    daemon.forget_runs();
    ASSERT_TRUE(daemon.wait_until(
        [&] { return daemon.registrations().size() == static_cast<std::size_t>(restart) + 1; }));
    reporter->step(step_event(static_cast<std::uint64_t>(restart)));
    reporter->need(Bytes(restart));  // sent at once, and the step with it
    ASSERT_TRUE(daemon.wait_until(
        [&] { return daemon.events<StepEvent>().size() == static_cast<std::size_t>(restart); }));
  }
  EXPECT_EQ(daemon.registrations().back().resume, "k3v9q2");
  EXPECT_EQ(reporter->status().reconnects, 5);
  EXPECT_FALSE(daemon.registrations().front().instance.empty());
  EXPECT_EQ(daemon.registrations().back().instance, daemon.registrations().front().instance);
  const auto other = Reporter::start(options_for(daemon));
  ASSERT_TRUE(other->wait_registered(seconds(10)));
  EXPECT_NE(daemon.registrations().back().instance, daemon.registrations().front().instance);
}

TEST(Reporter, AForkedChildLeavesItAlone) {
  FakeDaemon daemon(true);
  auto reporter = Reporter::start(options_for(daemon));
  ASSERT_TRUE(reporter->wait_registered(seconds(10)));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    reporter->step(step_event(1));
    const bool told = reporter->finish("failed", seconds(10));
    reporter.reset();
    _exit(told ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(reporter->finish("ok", seconds(10)));
  EXPECT_THAT(daemon.events<StepEvent>(), SizeIs(0));
}

TEST(Reporter, ManyThreadsMayCallIt) {
  FakeDaemon daemon(true);
  auto reporter = Reporter::start(options_for(daemon));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&reporter] {
      for (std::uint64_t i = 0; i < 200; ++i) {
        reporter->step(step_event(i));
        if (reporter->wants_snapshot()) reporter->snapshot(std::string("{}"));
        reporter->need(Bytes(static_cast<std::int64_t>(i)));
        if (const auto order = reporter->take_budget()) {
          reporter->budget_applied(order->seq, i, order->budget_bytes);
        }
        static_cast<void>(reporter->status());
      }
    });
  }
  for (std::uint64_t i = 1; i < 20; ++i) {
    daemon.command({i, SetBudgetCommand{Bytes(static_cast<std::int64_t>(i)), "group"}});
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(reporter->finish("ok", seconds(10)));
  EXPECT_EQ(
      static_cast<std::int64_t>(daemon.events<StepEvent>().size()) + reporter->status().dropped,
      800);
}

}  // namespace
}  // namespace pudica
