// What waits between the step and the daemon is bounded, and what is sent seldom is asked for
// seldom.
#include "inspect/report_mailbox.h"

#include <vector>

#include <gtest/gtest.h>

namespace pudica {
namespace {

using std::chrono::seconds;

StepEvent step_event(std::uint64_t plan, bool learning) {
  StepEvent event;
  event.record.plan_id = plan;
  event.learning = learning;
  return event;
}

class ReportMailboxTest : public ::testing::Test {
 protected:
  ReportMailbox mailbox_{4};
  ReportTime now_{seconds(1000)};
};

TEST_F(ReportMailboxTest, AFullQueueDropsTheOldestStepsAndKeepsBudgets) {
  mailbox_.add_budget({1, 1, Bytes(5)});
  for (std::uint64_t i = 0; i < 10; ++i) mailbox_.add_step(step_event(i, false));
  const Outgoing outgoing = mailbox_.take_outgoing();
  ASSERT_EQ(outgoing.events.size(), 4U);
  EXPECT_TRUE(std::holds_alternative<BudgetEvent>(outgoing.events[0]));
  EXPECT_EQ(std::get<StepEvent>(outgoing.events[3]).record.plan_id, 9U);
  EXPECT_EQ(mailbox_.dropped(), 7);
}

TEST_F(ReportMailboxTest, WhatIsPutBackGoesFirstAndTheLatestOfEachKindStays) {
  mailbox_.add_step(step_event(1, false));
  mailbox_.put_model("old", now_);
  mailbox_.put_end("ok");
  Outgoing outgoing = mailbox_.take_outgoing();
  mailbox_.add_step(step_event(2, false));
  mailbox_.put_model("new", now_);
  mailbox_.put_back(std::move(outgoing));
  const Outgoing again = mailbox_.take_outgoing();
  ASSERT_EQ(again.events.size(), 2U);
  EXPECT_EQ(std::get<StepEvent>(again.events[0]).record.plan_id, 1U);
  EXPECT_EQ(again.model, "new");
  EXPECT_EQ(again.end, "ok");
}

TEST_F(ReportMailboxTest, ASnapshotIsWantedAfterTheFirstStepAndThenWhenPlansChange) {
  mailbox_.add_step(step_event(1, false));
  EXPECT_FALSE(mailbox_.wants_snapshot(now_)) << "nobody to send it to";
  mailbox_.registered({"a", 1, std::nullopt, std::nullopt, 5, 15}, {});
  EXPECT_TRUE(mailbox_.wants_snapshot(now_));
  mailbox_.put_snapshot("{}", now_);
  mailbox_.take_outgoing();
  mailbox_.add_step(step_event(1, false));
  EXPECT_FALSE(mailbox_.wants_snapshot(now_ + seconds(5))) << "the same plan";
  EXPECT_TRUE(mailbox_.wants_snapshot(now_ + seconds(11))) << "its hits";
  mailbox_.add_step(step_event(2, false));
  EXPECT_FALSE(mailbox_.wants_snapshot(now_ + seconds(1)));
  EXPECT_TRUE(mailbox_.wants_snapshot(now_ + seconds(2)));
}

TEST_F(ReportMailboxTest, AModelIsWantedWhenSomethingWasLearned) {
  mailbox_.registered({"a", 1, std::nullopt, std::nullopt, 5, 15}, {});
  mailbox_.add_step(step_event(1, false));
  EXPECT_FALSE(mailbox_.wants_model(now_));
  mailbox_.add_step(step_event(2, true));
  EXPECT_TRUE(mailbox_.wants_model(now_));
  mailbox_.put_model("m", now_);
  mailbox_.take_outgoing();
  EXPECT_FALSE(mailbox_.wants_model(now_ + seconds(60)));
  mailbox_.add_step(step_event(3, true));
  EXPECT_FALSE(mailbox_.wants_model(now_ + seconds(4)));
  EXPECT_TRUE(mailbox_.wants_model(now_ + seconds(5)));
}

TEST_F(ReportMailboxTest, ANewRegistrationWantsEverythingAgain) {
  const Registration registration{"a", 1, std::nullopt, std::nullopt, 5, 15};
  mailbox_.registered(registration, {});
  mailbox_.add_step(step_event(1, true));
  mailbox_.put_snapshot("{}", now_);
  mailbox_.put_model("m", now_);
  mailbox_.put_need(Bytes(9));
  mailbox_.take_outgoing();
  mailbox_.expire(mailbox_.session()->epoch);
  EXPECT_FALSE(mailbox_.wants_snapshot(now_));
  mailbox_.registered(registration, {});
  EXPECT_TRUE(mailbox_.wants_snapshot(now_));
  EXPECT_TRUE(mailbox_.wants_model(now_));
  EXPECT_EQ(mailbox_.take_outgoing().need, Bytes(9));
}

// A run of a group that needs less for a while is to lend: its daemon must hear of it.
TEST_F(ReportMailboxTest, NeedsThatFallAreToldWithTheStepsAndRisesAtOnce) {
  mailbox_.registered({"a", 1, std::nullopt, std::nullopt, 5, 15}, {});
  mailbox_.take_outgoing();
  mailbox_.put_need(Bytes(9));
  EXPECT_TRUE(mailbox_.urgent());
  EXPECT_EQ(mailbox_.take_outgoing().need, Bytes(9));
  for (const std::int64_t bytes : {3, 5, 4}) mailbox_.put_need(Bytes(bytes));
  EXPECT_FALSE(mailbox_.urgent());
  Outgoing fallen = mailbox_.take_outgoing();
  EXPECT_EQ(fallen.need, Bytes(5)) << "the largest of the batch";
  mailbox_.put_need(Bytes(6));
  EXPECT_TRUE(mailbox_.urgent()) << "a rise above what was sent last";
  mailbox_.put_back(std::move(fallen));
  EXPECT_EQ(mailbox_.take_outgoing().need, Bytes(6));
}

TEST_F(ReportMailboxTest, CommandsOfAnOldRegistrationAreNotTaken) {
  const Registration registration{"a", 1, std::nullopt, std::nullopt, 5, 15};
  mailbox_.registered(registration, {});
  const std::uint64_t old = mailbox_.session()->epoch;
  mailbox_.registered(registration, {});
  const SetBudgetCommand budget{Bytes(5), "operator"};
  mailbox_.deliver(old, 3, &budget);
  EXPECT_FALSE(mailbox_.take_budget().has_value());
  mailbox_.expire(old);
  EXPECT_TRUE(mailbox_.session().has_value());
}

// The new daemon gives the same number to another order, and would take this for its answer.
TEST_F(ReportMailboxTest, NumbersOfADaemonBeforeThisOneAreNotTold) {
  const Registration registration{"a", 1, std::nullopt, std::nullopt, 5, 15};
  const SetBudgetCommand budget{Bytes(5), "group"};
  const auto told = [this] {
    std::vector<std::uint64_t> numbers;
    for (const RunEvent& event : mailbox_.take_outgoing().events) {
      numbers.push_back(std::get<BudgetEvent>(event).seq);
    }
    return numbers;
  };
  mailbox_.registered(registration, {});
  mailbox_.deliver(mailbox_.session()->epoch, 3, &budget);
  const auto order = mailbox_.take_budget();
  mailbox_.add_budget({order->seq, 7, order->budget_bytes});
  EXPECT_EQ(told(), std::vector<std::uint64_t>{3}) << "where the daemon is the same";
  mailbox_.add_budget({order->seq, 7, order->budget_bytes});
  RunDescription begun;
  begun.steps_done = 1;
  mailbox_.registered(registration, begun);
  EXPECT_EQ(told(), std::vector<std::uint64_t>{0}) << "waited to be sent";
  mailbox_.deliver(mailbox_.session()->epoch, 3, &budget);
  mailbox_.take_budget();
  mailbox_.registered(registration, begun);
  mailbox_.add_budget({3, 8, Bytes(5)});
  EXPECT_EQ(told(), std::vector<std::uint64_t>{0}) << "taken before, in effect after";
}

TEST_F(ReportMailboxTest, ARunThatComesBackNamesTheBudgetInForceWithItsFraction) {
  RunDescription said;
  said.budget_bytes = Bytes(900);
  said.budget_fraction = 0.4;
  mailbox_.put_in_force(said);
  EXPECT_EQ(said.budget_bytes, Bytes(900)) << "nothing has changed it";
  mailbox_.add_budget({0, 3, Bytes(500), 0.4});
  mailbox_.put_in_force(said);
  EXPECT_EQ(said.budget_bytes, Bytes(500));
  EXPECT_EQ(said.budget_fraction, 0.4);
  mailbox_.add_budget({0, 4, Bytes(600), std::nullopt});
  mailbox_.put_in_force(said);
  EXPECT_EQ(said.budget_bytes, Bytes(600));
  EXPECT_EQ(said.budget_fraction, std::nullopt);
}

TEST_F(ReportMailboxTest, OwnBudgetIsToldWhereTheRunBeganWithoutAnAnswer) {
  RunDescription said;
  said.budget_bytes = Bytes(900);
  EXPECT_EQ(mailbox_.steps_begun(), 0);
  mailbox_.take_budget();  // a step begins while the registration is on its way
  EXPECT_EQ(mailbox_.steps_begun(), 1);
  mailbox_.registered({"a", 1, Bytes(100), std::nullopt, 5, 15}, said);
  const auto outgoing = mailbox_.take_outgoing();
  ASSERT_EQ(outgoing.events.size(), 1U);
  EXPECT_EQ(std::get<BudgetEvent>(outgoing.events[0]).budget_bytes, Bytes(900));
  EXPECT_EQ(std::get<BudgetEvent>(outgoing.events[0]).seq, 0U);
  EXPECT_EQ(mailbox_.take_budget()->budget_bytes, Bytes(100));
}

}  // namespace
}  // namespace pudica
