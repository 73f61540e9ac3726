// Goal: the daemon sees what a run does, and its wishes take effect at the next step and not
// before. Method: a synthetic run under the real controller, with a daemon in memory.
#include "inspect/reporting_policy.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "inspect/fake_daemon.h"
#include "support/simulated_run.h"

namespace pudica {
namespace {

using std::chrono::seconds;
using testing::FakeDaemon;
using testing::SimulatedRun;
using testing::SimulatedRunOptions;
using ::testing::SizeIs;

SimulatedRunOptions options_for(FakeDaemon& daemon) {
  SimulatedRunOptions options;
  options.transport = daemon.maker();
  options.fingerprint = "f";
  return options;
}

TEST(ReportingPolicy, EveryStepIsReportedAsItWas) {
  FakeDaemon daemon(true);
  SimulatedRun run(options_for(daemon));
  ASSERT_TRUE(run.reporter().wait_registered(seconds(10)));
  std::vector<StepOutcome> outcomes;
  for (int i = 0; i < 20; ++i) outcomes.push_back(run.step());
  ASSERT_TRUE(run.finish("ok", seconds(10)));
  const auto steps = daemon.events<StepEvent>();
  ASSERT_THAT(steps, SizeIs(20));
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const StepRecord& record = steps[i].record;
    EXPECT_EQ(record.step, i + 1);
    EXPECT_EQ(record.measured_bytes, outcomes[i].peak_bytes);
    EXPECT_EQ(record.key, outcomes[i].context.shape);
    EXPECT_EQ(record.plan_id, outcomes[i].plan->id);
    EXPECT_EQ(record.budget_bytes, run.budget());
    EXPECT_THAT(record.modes, SizeIs(8)) << "of the first step too";
    EXPECT_EQ(steps[i].recomputed, outcomes[i].recomputed_layers);
    EXPECT_EQ(steps[i].learning, !outcomes[i].segments.empty());
    EXPECT_FALSE(record.profiles.has_value());
  }
  EXPECT_GE(daemon.events<SnapshotEvent>().size(), 1U);
  EXPECT_GE(daemon.events<ModelEvent>().size(), 1U);
  EXPECT_EQ(daemon.events<EndEvent>().back().status, "ok");
}

// Of a device whose times come late, with layers in host memory: a step by hand.
TEST(ReportingPolicy, HostMemoryAndTimesThatComeLateAreToldToo) {
  FakeDaemon daemon(true);
  ReporterOptions to_daemon;
  to_daemon.description.name = "train";
  to_daemon.transport = daemon.maker();
  const std::shared_ptr<Controller> controller = make_controller({});
  ReportingOptions options;
  options.fingerprint = "f";
  ReportingPolicy policy(controller, controller, Reporter::start(std::move(to_daemon)), options);
  ASSERT_TRUE(policy.reporter().wait_registered(seconds(10)));
  StepContext context;
  context.shape = ShapeKey{8, 128};
  StepOutcome outcome;
  outcome.context = context;
  outcome.plan = policy.begin_step(context).plan;
  outcome.host_peak_bytes = Bytes(4096);
  outcome.allocator = AllocatorPeaks{Bytes(5000), Bytes(8192), Bytes(100)};
  const SegmentKey forward{SegmentKind::kForward, 0, Mode::keep(), 0};
  outcome.segments.push_back({forward, 0, {{64}, 64, 64, 0}});
  policy.end_step(outcome);
  policy.learn_times({{forward, context.shape, 0.25, 1}});
  ASSERT_TRUE(policy.finish("ok", seconds(10)));
  EXPECT_EQ(daemon.events<StepEvent>().at(0).record.host_peak_bytes, Bytes(4096));
  EXPECT_EQ(daemon.events<StepEvent>().at(0).record.allocator, outcome.allocator);
  const auto learned = make_controller({});
  ASSERT_TRUE(learned->restore(daemon.events<ModelEvent>().back().state, "f").has_value());
  const auto rows = learned->snapshot().learned;
  const auto times = std::ranges::find(rows, "seconds", &LearnedQuantity::quantity);
  ASSERT_NE(times, rows.end());
  EXPECT_EQ(times->samples, 1);
}

// Plans every step, and measures in it.
class MeasuringPlanner final : public Policy {
 public:
  [[nodiscard]] std::string name() const override { return "measuring"; }
  void on_structure(const StepStructure& /*structure*/) override {}
  StepDecision begin_step(const StepContext& context) override {
    Plan plan;
    plan.id = 1;
    plan.shape = context.shape;
    plan.predicted_peak_bytes = Bytes(4096);
    StepDecision decision;
    decision.plan = std::make_shared<const Plan>(std::move(plan));
    decision.record = true;
    return decision;
  }
  void end_step(const StepOutcome& /*outcome*/) override {}
};

// A mode that was found later is in plans at once, and in the daemon's answers only with the state.
TEST(ReportingPolicy, WhatWasMeasuredInAPlannedStepIsToldBeforeTheEnd) {
  FakeDaemon daemon(true);
  ReporterOptions to_daemon;
  to_daemon.description.name = "train";
  to_daemon.transport = daemon.maker();
  ReportingOptions options;
  options.fingerprint = "f";
  ReportingPolicy policy(std::make_shared<MeasuringPlanner>(), make_controller({}),
                         Reporter::start(std::move(to_daemon)), options);
  ASSERT_TRUE(policy.reporter().wait_registered(seconds(10)));
  StepOutcome outcome;
  outcome.context.shape = ShapeKey{8, 128};
  outcome.plan = policy.begin_step(outcome.context).plan;
  policy.end_step(outcome);
  EXPECT_TRUE(daemon.wait_until([&] { return daemon.events<ModelEvent>().size() == 1; }));
  EXPECT_FALSE(daemon.events<StepEvent>().at(0).learning);
}

TEST(ReportingPolicy, ABudgetTakesEffectAtTheNextStepAndIsToldWithItsNumber) {
  FakeDaemon daemon(true);
  SimulatedRun run(options_for(daemon));
  ASSERT_TRUE(run.reporter().wait_registered(seconds(10)));
  for (int i = 0; i < 10; ++i) run.step();
  const Bytes lower = run.floor() + Bytes((run.budget() - run.floor()).count() / 2);
  daemon.command({5, SetBudgetCommand{lower, "operator"}});
  std::uint64_t changed = 0;
  ASSERT_TRUE(daemon.wait_until([&] {
    run.step();
    changed = run.budget() == lower ? run.steps() : 0;
    return changed != 0;
  }));
  for (int i = 0; i < 10; ++i) run.step();
  ASSERT_TRUE(run.finish("ok", seconds(10)));
  ASSERT_THAT(daemon.events<BudgetEvent>(), SizeIs(1));
  EXPECT_EQ(daemon.events<BudgetEvent>()[0].seq, 5U);
  EXPECT_EQ(daemon.events<BudgetEvent>()[0].step, changed);
  EXPECT_EQ(daemon.events<BudgetEvent>()[0].budget_bytes, lower);
  for (const StepEvent& step : daemon.events<StepEvent>()) {
    EXPECT_EQ(step.record.budget_bytes == lower, step.record.step >= changed);
    if (step.record.step >= changed) {
      EXPECT_LE(step.record.measured_bytes, lower);
    }
  }
}

TEST(ReportingPolicy, TheRegistrationsBudgetHoldsFromTheFirstStep) {
  FakeDaemon daemon(true);
  SimulatedRunOptions options = options_for(daemon);
  const Bytes wanted = SimulatedRun(options).keep_all();
  daemon.answer_registrations({"a", 1, wanted, std::nullopt, 5, 15});
  SimulatedRun run(options);
  ASSERT_TRUE(run.reporter().wait_registered(seconds(10)));
  run.step();
  EXPECT_EQ(run.budget(), wanted);
  ASSERT_TRUE(run.finish("ok", seconds(10)));
  EXPECT_EQ(daemon.events<BudgetEvent>()[0].step, 1U);
  EXPECT_EQ(daemon.events<StepEvent>()[0].record.budget_bytes, wanted);
}

TEST(ReportingPolicy, ABudgetThatWouldEndTheRunIsRaisedAndTold) {
  FakeDaemon daemon(true);
  daemon.answer_registrations({"a", 1, Bytes(1), std::nullopt, 5, 15});
  SimulatedRun run(options_for(daemon));
  ASSERT_TRUE(run.reporter().wait_registered(seconds(10)));
  run.step();
  EXPECT_EQ(run.budget(), run.floor());
  ASSERT_TRUE(run.finish("ok", seconds(10)));
  EXPECT_EQ(daemon.events<BudgetEvent>()[0].budget_bytes, run.floor());
}

TEST(ReportingPolicy, ASecondRunOfTheFingerprintLearnsNothingAgain) {
  FakeDaemon first_daemon(true);
  SimulatedRun first(options_for(first_daemon));
  ASSERT_TRUE(first.reporter().wait_registered(seconds(10)));
  for (int i = 0; i < 30; ++i) first.step();
  ASSERT_TRUE(first.finish("ok", seconds(10)));
  ASSERT_GT(first.controller().snapshot().counters.learning_steps, 0);

  FakeDaemon daemon(true);
  const std::string state = first_daemon.events<ModelEvent>().back().state;
  daemon.answer_registrations({"b", 1, std::nullopt, state, 5, 15});
  SimulatedRun second(options_for(daemon));
  ASSERT_TRUE(second.reporter().wait_registered(seconds(10)));
  second.step();
  EXPECT_EQ(second.controller().state(), ControllerState::kPlanning);
  for (int i = 1; i < 30; ++i) second.step();
  // A shape that was never kept whole may still be measured once.
  EXPECT_LE(second.controller().snapshot().counters.learning_steps, 1);
  EXPECT_EQ(second.digest(), first.digest());
  ASSERT_TRUE(second.finish("ok", seconds(10)));
}

TEST(ReportingPolicy, AStateOfAnotherModelOrRubbishIsPassedOver) {
  for (const char* state : {"", "rubbish", "pudica-state 1\n0\nfingerprint 1\ng\n"}) {
    FakeDaemon daemon(true);
    daemon.answer_registrations({"b", 1, std::nullopt, state, 5, 15});
    SimulatedRun run(options_for(daemon));
    ASSERT_TRUE(run.reporter().wait_registered(seconds(10)));
    for (int i = 0; i < 10; ++i) run.step();
    EXPECT_EQ(run.controller().state(), ControllerState::kPlanning) << state;
    ASSERT_TRUE(run.finish("ok", seconds(10)));
  }
}

TEST(ReportingPolicy, ALearnedModelIsNotGivenUpForAPooledOne) {
  FakeDaemon daemon(true);
  SimulatedRun run(options_for(daemon));
  ASSERT_TRUE(run.reporter().wait_registered(seconds(10)));
  for (int i = 0; i < 20; ++i) run.step();
  const std::string before = run.controller().serialize("f");
  daemon.offer_model("rubbish");  // taken, it would be refused with a line in the log
  daemon.command({1, ModelCommand{}});
  ASSERT_TRUE(daemon.wait_until([&] {
    for (const std::string& target : daemon.targets()) {
      if (target == "/v1/models/f") return true;
    }
    return false;
  }));
  run.step();
  EXPECT_EQ(run.controller().state(), ControllerState::kPlanning);
  ASSERT_TRUE(run.finish("ok", seconds(10)));
}

TEST(ReportingPolicy, ARunOfAGroupSaysWhatItCouldUse) {
  FakeDaemon daemon(true);
  SimulatedRunOptions options = options_for(daemon);
  options.group = "device";
  options.budget_share = 0.2;
  SimulatedRun run(options);
  ASSERT_TRUE(run.reporter().wait_registered(seconds(10)));
  EXPECT_EQ(daemon.registrations()[0].group, "device");
  for (int i = 0; i < 60; ++i) run.step();
  ASSERT_TRUE(daemon.wait_until([&] { return !daemon.events<NeedEvent>().empty(); }));
  const std::size_t told = daemon.events<NeedEvent>().size();
  for (int i = 0; i < 60; ++i) run.step();
  ASSERT_TRUE(run.finish("ok", seconds(10)));
  const auto needs = daemon.events<NeedEvent>();
  EXPECT_GT(needs.size(), told) << "the later batches are told of as well, whatever they need";
  const Bytes largest = std::ranges::max_element(needs, {}, &NeedEvent::bytes)->bytes;
  EXPECT_NEAR(static_cast<double>(largest.count()), static_cast<double>(run.keep_all().count()),
              0.01 * static_cast<double>(run.keep_all().count()));
}

TEST(ReportingPolicy, WithAndWithoutADaemonTheRunIsTheSame) {
  FakeDaemon daemon(true);
  SimulatedRun seen(options_for(daemon));
  SimulatedRunOptions off = options_for(daemon);
  off.reports = false;
  SimulatedRun unseen(off);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(seen.step().peak_bytes, unseen.step().peak_bytes);
    if (i == 20) daemon.forget_runs();
  }
  EXPECT_EQ(seen.digest(), unseen.digest());
}

}  // namespace
}  // namespace pudica
