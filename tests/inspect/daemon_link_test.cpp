// Goal: a run stays in touch with a daemon that is absent, slow, restarted or mad, asks it neither
// too often nor too seldom, and loses no more than it says. Method: a daemon in memory and a clock
// that the test moves; no threads.
#include "inspect/daemon_link.h"

#include <stdexcept>

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

StepEvent step_event(std::uint64_t step) {
  StepEvent event;
  event.record.run = "train";
  event.record.step = step;
  event.record.key = ShapeKey{4, 64};
  event.record.measured_bytes = Bytes(1);
  return event;
}

Result<HttpReply> nobody() { return Error{ErrorCode::kUnavailable, "nobody listens"}; }

class DaemonLinkTest : public ::testing::Test {
 protected:
  DaemonLinkTest() {
    RunDescription run;
    run.name = "train";
    run.fingerprint = "f";
    run.budget_bytes = Bytes(1000);
    link_.emplace(run, context());
    commands_.emplace("f", context());
  }
  LinkContext context() {
    return {*transport_, mailbox_, [this] { return now_; }, 7};
  }
  // Calls the link when it is due until `until`, as its thread does. Returns how often.
  int pump_until(ReportTime until) {
    int calls = 0;
    while (now_ < until && calls < 10000) {
      NextSend next = link_->pump();
      ++calls;
      now_ = std::max(now_ + milliseconds(1), std::min(next.at, until));
    }
    return calls;
  }
  // The requests that went to `target` so far.
  int requests(const std::string& target) const {
    int count = 0;
    for (const std::string& seen : daemon_.targets()) count += seen == target ? 1 : 0;
    return count;
  }

  FakeDaemon daemon_;
  std::unique_ptr<DaemonTransport> transport_ = daemon_.maker()();
  ReportMailbox mailbox_{1024};
  ReportTime now_{seconds(1000)};
  std::optional<EventLink> link_;
  std::optional<CommandLink> commands_;
};

TEST_F(DaemonLinkTest, RegistersAndSendsOnceASecond) {
  link_->pump();
  ASSERT_THAT(daemon_.registrations(), SizeIs(1));
  EXPECT_EQ(daemon_.registrations()[0].name, "train");
  EXPECT_TRUE(mailbox_.status().registered);
  EXPECT_EQ(mailbox_.status().id, "k3v9q2");
  const ReportTime begin = now_;
  for (std::uint64_t i = 0; i < 100; ++i) {  // ten steps a second for ten seconds
    mailbox_.add_step(step_event(i));
    pump_until(begin + milliseconds(100) * (i + 1));
  }
  EXPECT_GE(daemon_.batches().size(), 8U);
  EXPECT_LE(daemon_.batches().size(), 11U);
  EXPECT_GE(daemon_.events<StepEvent>().size(), 88U);
}

TEST_F(DaemonLinkTest, SendsAtOnceWhatIsUrgent) {
  link_->pump();
  mailbox_.add_budget({3, 9, Bytes(500)});
  link_->pump();
  ASSERT_THAT(daemon_.events<BudgetEvent>(), SizeIs(1));
  EXPECT_EQ(daemon_.events<BudgetEvent>()[0].seq, 3U);
  for (std::uint64_t i = 0; i < 256; ++i) mailbox_.add_step(step_event(i));
  link_->pump();
  EXPECT_THAT(daemon_.events<StepEvent>(), SizeIs(256));
  mailbox_.put_need(Bytes(77));
  link_->pump();
  EXPECT_THAT(daemon_.events<NeedEvent>(), SizeIs(1));
  mailbox_.put_need(Bytes(77));  // known already
  link_->pump();
  EXPECT_THAT(daemon_.events<NeedEvent>(), SizeIs(1));
}

TEST_F(DaemonLinkTest, ARunThatHasBegunSaysSoWheneverItRegisters) {
  daemon_.intercept([](const std::string&) { return nobody(); });
  link_->pump();
  mailbox_.take_budget();  // at the beginning of each step
  mailbox_.take_budget();
  daemon_.intercept({});
  pump_until(now_ + seconds(30));
  ASSERT_THAT(daemon_.registrations(), SizeIs(1));
  EXPECT_EQ(daemon_.registrations()[0].steps_done, 2);
}

TEST_F(DaemonLinkTest, AnIdleRunSendsHeartbeatsOnly) {
  link_->pump();
  pump_until(now_ + seconds(26));
  EXPECT_THAT(daemon_.batches(), SizeIs(5));
  for (const EventBatch& batch : daemon_.batches()) EXPECT_THAT(batch.events, SizeIs(0));
}

TEST_F(DaemonLinkTest, HeartbeatsKeepTheDaemonsTimeout) {
  daemon_.answer_registrations({"a", 1, std::nullopt, std::nullopt, 1e9, 2});
  link_->pump();
  pump_until(now_ + seconds(10));
  EXPECT_GE(daemon_.batches().size(), 9U);
}

TEST_F(DaemonLinkTest, AnAbsentDaemonIsAskedLessAndLess) {
  daemon_.intercept([](const std::string&) { return nobody(); });
  pump_until(now_ + seconds(1));
  EXPECT_GE(requests("/v1/runs"), 3);
  EXPECT_FALSE(mailbox_.status().registered);
  EXPECT_THAT(mailbox_.status().reason, HasSubstr("nobody listens"));
  pump_until(now_ + seconds(60));
  const int before = requests("/v1/runs");
  pump_until(now_ + seconds(100));
  const int in_a_long_time = requests("/v1/runs") - before;
  EXPECT_GE(in_a_long_time, 9);  // at least every 10 s
  EXPECT_LE(in_a_long_time, 21);
  daemon_.intercept(nullptr);
  pump_until(now_ + seconds(11));
  EXPECT_TRUE(mailbox_.status().registered);
  EXPECT_EQ(mailbox_.status().reason, "");
}

TEST_F(DaemonLinkTest, WaitsBetweenAttemptsDifferFromRunToRun) {
  Backoff one(1);
  Backoff other(2);
  bool differ = false;
  for (int i = 0; i < 20; ++i) {
    const milliseconds wait = one.next();
    EXPECT_GE(wait, milliseconds(50));
    EXPECT_LE(wait, milliseconds(10000));
    differ = differ || wait != other.next();
  }
  EXPECT_TRUE(differ);
  EXPECT_GE(one.next(), milliseconds(5000));
  one.reset();
  EXPECT_LE(one.next(), milliseconds(100));
}

TEST_F(DaemonLinkTest, NothingIsLostWhileTheDaemonRestarts) {
  link_->pump();
  mailbox_.add_step(step_event(1));
  mailbox_.add_budget({2, 1, Bytes(400)});
  daemon_.intercept([](const std::string&) { return nobody(); });
  pump_until(now_ + seconds(5));
  mailbox_.add_step(step_event(2));
  EXPECT_FALSE(mailbox_.status().registered);
  daemon_.forget_runs();
  daemon_.intercept(nullptr);
  while (daemon_.registrations().size() < 2) pump_until(now_ + milliseconds(10));
  pump_until(now_ + milliseconds(50));  // at once: it may be gone again in a second
  ASSERT_THAT(daemon_.registrations(), SizeIs(2));
  EXPECT_EQ(daemon_.registrations()[1].resume, "k3v9q2");
  EXPECT_EQ(daemon_.registrations()[1].budget_bytes, Bytes(400)) << "what is in effect";
  const auto steps = daemon_.events<StepEvent>();
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_EQ(steps[0].record.step, 1U);
  EXPECT_EQ(steps[1].record.step, 2U);
  EXPECT_EQ(mailbox_.status().reconnects, 1);
  EXPECT_EQ(mailbox_.status().dropped, 0);
}

TEST_F(DaemonLinkTest, ALongAbsenceDropsTheOldestAndSaysHowMany) {
  daemon_.intercept([](const std::string&) { return nobody(); });
  for (std::uint64_t i = 0; i < 1500; ++i) mailbox_.add_step(step_event(i));
  pump_until(now_ + seconds(1));
  daemon_.intercept(nullptr);
  pump_until(now_ + seconds(12));
  const auto steps = daemon_.events<StepEvent>();
  ASSERT_THAT(steps, SizeIs(1024));
  EXPECT_EQ(steps.front().record.step, 476U);
  EXPECT_EQ(steps.back().record.step, 1499U);
  EXPECT_EQ(daemon_.batches().back().dropped, 476);
}

TEST_F(DaemonLinkTest, AnotherProtocolEndsItForGood) {
  daemon_.intercept([](const std::string&) {
    return HttpReply{426, R"({"error":{"code":"protocol","message":"speaks 2 to 3, seen 1"}})"};
  });
  link_->pump();
  const ReporterStatus status = mailbox_.status();
  EXPECT_TRUE(status.stopped);
  EXPECT_FALSE(status.registered);
  EXPECT_THAT(status.reason, HasSubstr("speaks 2 to 3, seen 1"));
  mailbox_.add_step(step_event(1));
  EXPECT_FALSE(mailbox_.has_events());
}

TEST_F(DaemonLinkTest, RubbishForARegistrationIsNoRegistration) {
  for (const HttpReply& reply :
       {HttpReply{201, "<html>"}, HttpReply{201, ""}, HttpReply{201, "[]"},
        HttpReply{201, R"({"id":"","protocol":1})"}, HttpReply{201, R"({"id":7})"},
        HttpReply{200, R"({"id":"a","protocol":1,"budget_bytes":-4})"}, HttpReply{500, "oops"},
        HttpReply{302, ""}, HttpReply{400, "{}"}, HttpReply{99, "x"}}) {
    daemon_.intercept([reply](const std::string&) { return reply; });
    now_ += seconds(20);
    link_->pump();
    EXPECT_FALSE(mailbox_.status().registered) << reply.status << ' ' << reply.body;
    EXPECT_NE(mailbox_.status().reason, "") << reply.status << ' ' << reply.body;
  }
  daemon_.intercept(nullptr);
  pump_until(now_ + seconds(11));
  EXPECT_TRUE(mailbox_.status().registered);
}

TEST_F(DaemonLinkTest, WhatTheDaemonRefusesIsNotSentForEver) {
  link_->pump();
  mailbox_.add_step(step_event(1));
  daemon_.intercept([](const std::string& target) -> std::optional<Result<HttpReply>> {
    if (target == "/v1/runs") return std::nullopt;
    return HttpReply{413, R"({"error":{"code":"too_large","message":"too large"}})"};
  });
  pump_until(now_ + seconds(10));
  EXPECT_EQ(mailbox_.status().dropped, 1);
  daemon_.intercept(nullptr);
  mailbox_.add_step(step_event(2));
  pump_until(now_ + seconds(11));
  ASSERT_THAT(daemon_.events<StepEvent>(), SizeIs(1));
  EXPECT_EQ(daemon_.batches().back().dropped, 1);
}

TEST_F(DaemonLinkTest, ADaemonThatForgetsEveryRunIsNotAskedWithoutPause) {
  daemon_.intercept([](const std::string& target) -> std::optional<Result<HttpReply>> {
    if (target == "/v1/runs") return std::nullopt;
    return HttpReply{404, ""};
  });
  mailbox_.add_step(step_event(1));
  const ReportTime end = now_ + seconds(60);
  for (int i = 0; i < 2000 && now_ < end; ++i) {  // with the commands' thread beside it
    const NextSend next = link_->pump();
    commands_->poll();
    now_ = std::max(now_ + milliseconds(1), next.at);
  }
  EXPECT_LT(daemon_.registrations().size(), 40U);
  daemon_.intercept(nullptr);
  pump_until(now_ + seconds(11));
  EXPECT_THAT(daemon_.events<StepEvent>(), SizeIs(1));
}

TEST_F(DaemonLinkTest, NoBodyIsLargerThanTheDaemonTakes) {
  for (std::uint64_t i = 0; i < 1000; ++i) {
    StepEvent event = step_event(i);
    event.record.modes.assign(200, Mode::full());
    mailbox_.add_step(std::move(event));
  }
  mailbox_.put_snapshot(std::string(R"({"a":")") + std::string(2 << 20U, 'x') + R"("})", now_);
  mailbox_.put_model(std::string(2 << 20U, '\n'), now_);  // escaped it takes 4 MiB: not sent
  pump_until(now_ + seconds(3));
  EXPECT_LE(daemon_.largest_body(), kMaxBodyBytes);
  EXPECT_THAT(daemon_.events<StepEvent>(), SizeIs(1000));
  EXPECT_THAT(daemon_.events<SnapshotEvent>(), SizeIs(1));
  EXPECT_THAT(daemon_.events<ModelEvent>(), SizeIs(0));
  EXPECT_EQ(mailbox_.status().dropped, 1);
}

TEST_F(DaemonLinkTest, TheEndComesLastAndIsTheLast) {
  link_->pump();
  mailbox_.put_end("ok");
  mailbox_.add_step(step_event(1));
  mailbox_.put_model("m", now_);
  link_->pump();
  const auto events = daemon_.batches().back().events;
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(std::get<EndEvent>(events.back()).status, "ok");
  EXPECT_TRUE(mailbox_.status().stopped);
  EXPECT_TRUE(mailbox_.wait_end_sent(milliseconds(0)));
}

TEST_F(DaemonLinkTest, AnExceptionWhileSendingLosesNothing) {
  link_->pump();
  mailbox_.add_step(step_event(1));
  mailbox_.put_model("m", now_);
  now_ += seconds(2);
  daemon_.intercept([](const std::string&) -> std::optional<Result<HttpReply>> {
    throw std::runtime_error("thrown by the transport");
  });
  EXPECT_THROW(link_->pump(), std::runtime_error);
  daemon_.intercept(nullptr);
  pump_until(now_ + seconds(2));
  EXPECT_THAT(daemon_.events<StepEvent>(), SizeIs(1));
  EXPECT_THAT(daemon_.events<ModelEvent>(), SizeIs(1));
}

TEST_F(DaemonLinkTest, CommandsArriveOnceAndTheLatestBudgetWins) {
  link_->pump();
  daemon_.command({1, SetBudgetCommand{Bytes(600), "operator"}});
  daemon_.command({2, SetBudgetCommand{Bytes(700), "group"}});
  commands_->poll();
  const auto order = mailbox_.take_budget();
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->seq, 2U);
  EXPECT_EQ(order->budget_bytes, Bytes(700));
  EXPECT_EQ(order->source, "group");
  const ReportTime next = commands_->poll();
  EXPECT_GT(next, now_) << "an empty answer that did not wait";
  EXPECT_FALSE(mailbox_.take_budget().has_value());
}

TEST_F(DaemonLinkTest, ARestartedDaemonsCommandsCountFromTheBeginning) {
  link_->pump();
  daemon_.command({9, SetBudgetCommand{Bytes(600), "operator"}});
  commands_->poll();
  EXPECT_EQ(mailbox_.session()->after, 9U);
  daemon_.forget_runs();
  commands_->poll();
  EXPECT_FALSE(mailbox_.session().has_value());
  pump_until(now_ + seconds(1));
  EXPECT_EQ(mailbox_.take_budget()->seq, 0U) << "asked for by the old daemon, not taken yet";
  daemon_.command({1, SetBudgetCommand{Bytes(800), "operator"}});
  commands_->poll();
  EXPECT_EQ(mailbox_.take_budget()->budget_bytes, Bytes(800));
}

TEST_F(DaemonLinkTest, RubbishForCommandsIsPassedOverWithAPause) {
  link_->pump();
  for (const char* body : {"", "null", "[]", R"({"commands":7})", R"({"commands":[7]})",
                           R"({"commands":[{"seq":1,"type":"set_budget","budget_bytes":-1}]})",
                           R"({"commands":[{"seq":-1,"type":"model"}]})"}) {
    daemon_.intercept([body](const std::string&) { return HttpReply{200, body}; });
    EXPECT_GT(commands_->poll(), now_) << body;
    EXPECT_FALSE(mailbox_.take_budget().has_value()) << body;
  }
}

TEST_F(DaemonLinkTest, TheRegistrationBringsBudgetAndModel) {
  daemon_.answer_registrations({"a", 1, Bytes(444), "learned before", 5, 15});
  link_->pump();
  EXPECT_EQ(mailbox_.take_budget()->budget_bytes, Bytes(444));
  EXPECT_EQ(mailbox_.take_model(), "learned before");
  EXPECT_FALSE(mailbox_.take_model().has_value());
}

TEST_F(DaemonLinkTest, AModelCommandFetchesTheModel) {
  link_->pump();
  daemon_.offer_model("pooled");
  daemon_.command({1, ModelCommand{}});
  commands_->poll();
  EXPECT_EQ(requests("/v1/models/f"), 1);
  EXPECT_EQ(mailbox_.take_model(), "pooled");
}

}  // namespace
}  // namespace pudica
