#include "daemon/run_registry.h"

#include <algorithm>
#include <array>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/daemon_parts.h"
#include "daemon/run_json.h"

namespace pudica::daemon {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

struct RunRegistryTest : testing::Test {
  ManualTime time;
  RunRegistry registry{time.clock(), {.runs = 3, .ended_runs = 2, .timeout_seconds = 15}};

  std::string add(const std::string& name, const std::string& resume = {}, std::int64_t pid = 1) {
    RunDescription run = described(name, pid);
    run.resume = resume;
    return registry.add(run).value();
  }
  RunSummary summary(const std::string& id) const { return registry.find(id).value().summary; }
  std::vector<Command> commands(const std::string& id, std::uint64_t after) {
    return registry.commands(id, after, milliseconds(0)).value();
  }
};

TEST_F(RunRegistryTest, ListsLiveRunsOldestFirst) {
  const std::string first = add("b");
  const std::string second = add("a");
  const auto runs = registry.list(RunRegistry::Which::kLive);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].id, first);
  EXPECT_EQ(runs[1].id, second);
  EXPECT_EQ(first.size(), 6U);
}

TEST_F(RunRegistryTest, RefusesMoreRunsThanTheLimit) {
  for (const char* name : {"a", "b", "c"}) add(name);
  const auto refused = registry.add(described("d"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("3"));
}

TEST_F(RunRegistryTest, ResumedIdIsGivenAgainWhereItIsFree) {
  EXPECT_EQ(add("a", "k3v9q2"), "k3v9q2");
  EXPECT_NE(add("b", "k3v9q2"), "k3v9q2");  // taken by another process's run
  EXPECT_NE(add("c", "../../etc"), "../../etc");
}

TEST_F(RunRegistryTest, SameProcessComesBackWithItsHistory) {
  const std::string id = add("a");
  ASSERT_TRUE(registry.apply(id, {0, {step_event(1, 500)}}));
  time.pass(16);
  EXPECT_THAT(registry.expire(), ElementsAre(id));
  EXPECT_FALSE(registry.apply(id, {}));
  EXPECT_EQ(add("a", id), id);
  EXPECT_EQ(summary(id).steps, 1);
  EXPECT_EQ(summary(id).phase, RunPhase::kPlanning);
  EXPECT_EQ(summary(id).status, "");
}

TEST_F(RunRegistryTest, SilentRunIsLostAfterItsTimeout) {
  const std::string id = add("a");
  time.pass(15);
  EXPECT_THAT(registry.expire(), IsEmpty());
  time.pass(1);
  EXPECT_THAT(registry.expire(), ElementsAre(id));
  EXPECT_EQ(summary(id).phase, RunPhase::kLost);
  EXPECT_EQ(summary(id).status, "lost");
  EXPECT_THAT(registry.list(RunRegistry::Which::kLive), IsEmpty());
  EXPECT_EQ(registry.list(RunRegistry::Which::kAll).size(), 1U);
}

TEST_F(RunRegistryTest, EventsAndPollsKeepARunAlive) {
  const std::string id = add("a");
  for (int i = 0; i < 4; ++i) {
    time.pass(10);
    if (i % 2 == 0) {
      ASSERT_TRUE(registry.apply(id, {}));
    } else {
      commands(id, 0);
    }
    EXPECT_THAT(registry.expire(), IsEmpty());
  }
}

TEST_F(RunRegistryTest, RemembersAsManyEndedRunsAsToldTo) {
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(registry.apply(add(name), {0, {EndEvent{"ok"}}}));
  }
  const auto runs = registry.list(RunRegistry::Which::kAll);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].about->name, "b");
  EXPECT_EQ(runs[1].status, "ok");
}

TEST_F(RunRegistryTest, NothingFollowsTheEnd) {
  const std::string id = add("a");
  ASSERT_TRUE(registry.apply(id, {0, {EndEvent{"oom"}, step_event(9, 1)}}));
  EXPECT_EQ(summary(id).step, std::nullopt);
  EXPECT_FALSE(registry.apply(id, {}));
}

TEST_F(RunRegistryTest, NamesMeanLiveRunsBeforeEndedOnes) {
  const std::string ended = add("train");
  EXPECT_THAT(registry.ids_of("train"), ElementsAre(ended));
  ASSERT_TRUE(registry.apply(ended, {0, {EndEvent{"ok"}}}));
  EXPECT_THAT(registry.ids_of("train"), ElementsAre(ended));
  const std::string first = add("train");
  const std::string second = add("train");
  EXPECT_THAT(registry.ids_of("train"), ElementsAre(first, second));
  EXPECT_THAT(registry.ids_of(second), ElementsAre(second));
  EXPECT_THAT(registry.ids_of("other"), IsEmpty());
}

TEST_F(RunRegistryTest, NewestBudgetReplacesOlderOnes) {
  const std::string id = add("a");
  EXPECT_EQ(registry.push_budget(id, {Bytes(400), "operator"}).value(), 1U);
  EXPECT_EQ(registry.push_model(id).value(), 2U);
  EXPECT_EQ(registry.push_budget(id, {Bytes(300), "operator"}).value(), 3U);
  const auto queued = commands(id, 0);
  ASSERT_EQ(queued.size(), 2U);
  EXPECT_EQ(queued[0].seq, 2U);
  EXPECT_EQ(std::get<SetBudgetCommand>(queued[1].what).budget_bytes, Bytes(300));
  EXPECT_EQ(commands(id, 2).size(), 1U);
  EXPECT_THAT(commands(id, 3), IsEmpty());
  // A number of another daemon: what waits is given all the same.
  ASSERT_TRUE(registry.push_model(id));
  EXPECT_EQ(commands(id, 99).size(), 1U);
}

TEST(SpreadWait, PollsThatBeganTogetherEndApart) {
  constexpr std::chrono::milliseconds kAsked{25000};
  std::mt19937_64 random(7);
  std::array<int, 51> ends{};  // by tenths of the last five seconds
  for (int poll = 0; poll < 200; ++poll) {
    const auto wait = spread_wait(kAsked, random);
    ASSERT_LE(wait, kAsked);
    ASSERT_GE(wait, kAsked * 4 / 5);
    ++ends.at(static_cast<std::size_t>((kAsked - wait).count() / 100));
  }
  EXPECT_LT(std::ranges::max(ends), 20);
  EXPECT_EQ(spread_wait(std::chrono::milliseconds(0), random).count(), 0);
}

TEST_F(RunRegistryTest, WaitingPollGetsTheCommandAtOnce) {
  const std::string id = add("a");
  std::vector<Command> seen;
  std::thread poll([&] { seen = registry.commands(id, 0, std::chrono::seconds(30)).value(); });
  EXPECT_TRUE(registry.push_budget(id, {Bytes(1), "group"}));
  poll.join();
  EXPECT_EQ(seen.size(), 1U);
}

TEST_F(RunRegistryTest, WaitEndsOnceWhoAskedIsGone) {
  const std::string id = add("a");
  std::stop_source gone;
  std::thread poll([&] {
    const auto none = registry.commands(id, 0, std::chrono::seconds(30), gone.get_token());
    EXPECT_THAT(none.value(), IsEmpty());
  });
  gone.request_stop();
  poll.join();
  EXPECT_TRUE(registry.find(id)->summary.live());
}

TEST_F(RunRegistryTest, StopEndsEveryWait) {
  const std::string id = add("a");
  std::thread poll(
      [&] { EXPECT_TRUE(registry.commands(id, 0, std::chrono::seconds(30)).has_value()); });
  registry.stop();
  poll.join();
  EXPECT_THAT(registry.commands(id, 0, std::chrono::seconds(30)).value(), IsEmpty());
}

TEST_F(RunRegistryTest, EndOfARunEndsItsWait) {
  const std::string id = add("a");
  Result<std::vector<Command>> answer = std::vector<Command>{};
  std::thread poll([&] { answer = registry.commands(id, 0, std::chrono::seconds(30)); });
  ASSERT_TRUE(registry.apply(id, {0, {EndEvent{"ok"}}}));
  poll.join();
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::kNotFound);
}

TEST_F(RunRegistryTest, BudgetIsPendingUntilTheRunTakesItUp) {
  const std::string id = add("a");
  ASSERT_TRUE(registry.apply(id, {0, {step_event(1, 590)}}));
  const std::uint64_t seq = registry.push_budget(id, {Bytes(500), "operator"}).value();
  EXPECT_EQ(summary(id).budget_pending_bytes, Bytes(500));
  EXPECT_EQ(summary(id).budget_bytes, Bytes(600));
  ASSERT_TRUE(registry.apply(id, {0, {step_event(2, 580), BudgetEvent{seq, 3, Bytes(500)}}}));
  EXPECT_EQ(summary(id).budget_pending_bytes, std::nullopt);
  EXPECT_EQ(summary(id).budget_source, "operator");
  ASSERT_TRUE(registry.apply(id, {0, {step_event(3, 480), step_event(4, 470)}}));
  const auto budgets = registry.find(id).value().budgets;
  ASSERT_EQ(budgets.size(), 2U);
  EXPECT_EQ(budgets[0].measured_bytes, Bytes(590));
  EXPECT_EQ(budgets[1].step, 3U);
  EXPECT_EQ(budgets[1].measured_bytes, Bytes(480));
  EXPECT_EQ(budgets[1].predicted_bytes, Bytes(481));
  EXPECT_EQ(budgets[1].plan_id, 7U);
}

TEST_F(RunRegistryTest, StatisticsCoverWhatTheyPromise) {
  const std::string id = add("a");
  EventBatch batch;
  // Seconds 1..300: the median of the last 128 is that of 173..300.
  for (std::uint64_t i = 1; i <= 300; ++i) {
    batch.events.emplace_back(step_event(i, static_cast<std::int64_t>(i % 7), double(i)));
  }
  for (std::uint64_t i = 0; i < 300; ++i) {
    batch.events.emplace_back(step_event(301 + i, 3, 1000));
  }
  batch.dropped = 5;
  EventBatch first{0, {batch.events.begin(), batch.events.begin() + 300}};
  ASSERT_TRUE(registry.apply(id, first));
  EXPECT_EQ(summary(id).step_seconds_median, 237);
  ASSERT_TRUE(registry.apply(id, {5, {batch.events.begin() + 300, batch.events.end()}}));
  const RunDetail detail = registry.find(id).value();
  EXPECT_EQ(detail.steps.size(), kStepsKept);
  EXPECT_EQ(detail.steps.front().step, 600U - kStepsKept + 1);
  EXPECT_EQ(detail.summary.steps, 600);
  EXPECT_EQ(detail.summary.peak_bytes, Bytes(6));
  EXPECT_EQ(detail.summary.dropped_records, 5);
  EXPECT_EQ(detail.summary.recomputed_calls_share, 0.25);
  EXPECT_EQ(detail.summary.recomputed_share, std::nullopt) << "no step told what it took";
}

TEST_F(RunRegistryTest, TheShareOfTimeIsOfStepsThatToldIt) {
  const std::string id = add("a");
  StepEvent kept = step_event(1, 5, 3);
  kept.record.recompute_seconds = 0;
  StepEvent again = step_event(2, 5, 1);
  again.record.recompute_seconds = 0.5;
  ASSERT_TRUE(registry.apply(id, {0, {kept, again, step_event(3, 5, 1000)}}));
  EXPECT_EQ(summary(id).recomputed_share, 0.125);
}

// Of a run whose budget was cut: what its peaks took of it before does not become too much.
TEST_F(RunRegistryTest, APeakIsJudgedByTheBudgetOfItsOwnStep) {
  const std::string id = add("a");
  StepEvent tight = step_event(2, 290);
  tight.record.budget_bytes = Bytes(300);
  ASSERT_TRUE(registry.apply(id, {0, {step_event(1, 540), BudgetEvent{1, 2, Bytes(300)}, tight}}));
  EXPECT_EQ(summary(id).peak_bytes, Bytes(540));
  EXPECT_DOUBLE_EQ(summary(id).budget_used.value_or(0), 290.0 / 300);
  const RunDetail detail = registry.find(id).value();
  EXPECT_EQ(detail.budgets.back().seq, 1U) << "which command it answers";
  EXPECT_EQ(detail.budgets.back().seconds, 0.25);
}

TEST_F(RunRegistryTest, SnapshotSaysStateAndCounters) {
  const std::string id = add("a");
  const char* text = R"({"events":[{"type":"snapshot","snapshot":{"state":"standing_down",
      "state_reason":"drift","base_bytes":40,"margin_bytes":3,
      "counters":{"learning_steps":9,"revocations":2,"overruns":1},
      "cache":{"hits":30,"misses":8,"plans":7},"plans":[{"key":"batch=1"}]}}]})";
  const EventBatch batch = parse_event_batch(text).value();
  ASSERT_TRUE(registry.apply(id, batch));
  EXPECT_EQ(summary(id).phase, RunPhase::kRegistered);  // until its first step
  ASSERT_TRUE(registry.apply(id, {0, {step_event(1, 5)}}));
  ASSERT_TRUE(registry.apply(id, batch));
  const RunSummary run = summary(id);
  EXPECT_EQ(run.phase, RunPhase::kStandingDown);
  EXPECT_EQ(run.phase_reason, "drift");
  EXPECT_EQ(run.base_bytes, Bytes(40));
  EXPECT_EQ(run.learning_steps, 9);
  EXPECT_EQ(run.revocations, 2);
  const auto json = inspect::Json::parse(to_json(registry.find(id).value(), CommandLine::kShown));
  EXPECT_EQ(json["cache"]["hits"], 30);
  EXPECT_EQ(json["margin_bytes"], 3);
  EXPECT_EQ(plans_json(registry.find(id).value())["plans"].size(), 1U);
}

}  // namespace
}  // namespace pudica::daemon
