// The controller when something changes: drift, budget, base, layers.
#include <utility>

#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

const ShapeKey kLongest{8, 512};

TEST(ControllerChange, DriftIsLearnedAnew) {
  Harness harness({});
  const Bytes budget = harness.budget_at(kLongest, 0.5);
  for (const std::int64_t length : lengths(60, 1)) harness.step({8, length}, budget);
  ASSERT_EQ(harness.controller->snapshot().counters.drifts, 0);
  harness.model.spec().inventory_scale = 2;
  const auto trace = lengths(80, 2);
  std::int64_t late_learning = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    const auto step = harness.step({8, trace[i]}, budget);
    EXPECT_LE(step.outcome.peak_bytes, budget) << i;
    if (i < 30) continue;
    late_learning += step.decision.record ? 1 : 0;
    EXPECT_EQ(step.outcome.revocations, 0) << i;
    EXPECT_EQ(step.outcome.peak_bytes, step.decision.plan->predicted_peak_bytes) << i;
  }
  EXPECT_EQ(late_learning, 0);
  EXPECT_GE(harness.controller->snapshot().counters.drifts, 1);
}

// What is learned in frames, which hold a layer's inputs, is a bound for layers without hooks.
TEST(ControllerChange, LayersWithoutHooksMayNeedLess) {
  Harness harness({});
  Controller& controller = *harness.controller;
  const Bytes budget = harness.budget_at(kLongest, 3.0);
  std::int64_t hook_free = 0;
  for (const std::int64_t length : lengths(60, 1)) {
    const StepContext context = harness.model.context({8, length}, budget);
    const StepDecision decision = controller.begin_step(context);
    StepOutcome outcome = harness.model.run(context, decision);
    if (!decision.plan->revocable) {
      ++hook_free;
      EXPECT_FALSE(decision.record);
      outcome.peak_bytes = Bytes(outcome.peak_bytes.count() * 98 / 100);
    }
    controller.on_structure(harness.model.structure());
    controller.end_step(outcome);
  }
  EXPECT_GT(hook_free, 50);
  EXPECT_EQ(controller.snapshot().counters.drifts, 0);
}

TEST(ControllerChange, BudgetTakesEffectAtTheNextStepAndKeepsPlansThatStillFit) {
  Harness harness({});
  const Bytes wide = harness.budget_at(kLongest, 0.9);
  for (const std::int64_t length : {64, 96, 128, 256, 448, 512}) harness.step({8, length}, wide);
  const auto before = harness.controller->snapshot();
  const Bytes tight = harness.budget_at(kLongest, 0.3);
  const auto shorter = harness.step({8, 128}, tight);
  const auto longer = harness.step({8, 512}, tight);
  EXPECT_LE(longer.outcome.peak_bytes, tight);
  EXPECT_EQ(longer.outcome.revocations, 0);
  EXPECT_GT(longer.decision.plan->predicted_extra_seconds, 0);
  const auto after = harness.controller->snapshot();
  EXPECT_EQ(after.cache_hits, before.cache_hits + 1)
      << "128 still fits: " << shorter.decision.plan->reason;
  const auto again = harness.step({8, 512}, wide);
  EXPECT_LT(again.decision.plan->predicted_extra_seconds,
            longer.decision.plan->predicted_extra_seconds);
}

TEST(ControllerChange, TheLatestOfSetBudgetAndContextWins) {
  Harness harness({});
  const Bytes wide = harness.budget_at(kLongest, 1.5);
  for (const std::int64_t length : {64, 96, 128}) harness.step({8, length}, wide);
  EXPECT_EQ(harness.step(kLongest, wide).decision.plan->predicted_extra_seconds, 0);
  const Bytes tight = harness.budget_at(kLongest, 0.3);
  harness.controller->set_budget(tight);
  const auto step = harness.step(kLongest, wide);
  EXPECT_LE(step.outcome.peak_bytes, tight);
  EXPECT_EQ(harness.controller->snapshot().budget_bytes, tight);
}

TEST(ControllerChange, AGrownBaseIsPlannedFor) {
  Harness harness({});
  const Bytes budget = harness.budget_at(kLongest, 0.5);
  for (const std::int64_t length : {64, 96, 128, 512, 512}) harness.step({8, length}, budget);
  StepContext context = harness.model.context(kLongest, budget);
  const auto before = harness.controller->begin_step(context);
  const Bytes growth(20 << 20);
  context.base_bytes += growth;
  const auto after = harness.controller->begin_step(context);
  EXPECT_LE(after.plan->predicted_peak_bytes, budget);
  EXPECT_GT(after.plan->predicted_extra_seconds, before.plan->predicted_extra_seconds);
  // The jitter of a batch tensor is no reason for a new plan.
  context.base_bytes -= Bytes(64);
  EXPECT_EQ(harness.controller->begin_step(context).plan->id, after.plan->id);
}

TEST(ControllerChange, NewLayersOfAKnownClassNeedOneRecordedStep) {
  Harness harness({});
  const Bytes budget = harness.budget_at(kLongest, 1);
  for (const std::int64_t length : lengths(20, 4)) harness.step({8, length}, budget);
  harness.model.spec().encoder_layers = 10;
  harness.controller->on_structure(harness.model.structure());
  EXPECT_EQ(harness.step({8, 200}, budget).state, ControllerState::kLearning);
  EXPECT_EQ(harness.step({8, 208}, budget).state, ControllerState::kLearning)
      << "the gaps before the new layers were seen once";
  const auto step = harness.step({8, 304}, budget);
  EXPECT_EQ(step.state, ControllerState::kPlanning) << step.decision.plan->reason;
  EXPECT_EQ(step.outcome.peak_bytes, step.decision.plan->predicted_peak_bytes);
}

// Layers dropped at random: which of them a step runs is known once it has.
TEST(ControllerChange, LayersThatComeAndGoLeaveNoPrediction) {
  Harness harness({});
  const Bytes budget = harness.budget_at(kLongest, 0.6);
  for (const std::int64_t length : lengths(20, 1)) harness.step({8, length}, budget);
  std::mt19937_64 random(3);
  int step = 0;
  for (const std::int64_t length : lengths(40, 2)) {
    harness.model.spec().encoder_layers = 4 + static_cast<int>(random() % 5);
    const auto done = harness.step({8, length}, budget);
    EXPECT_LE(done.outcome.peak_bytes, budget) << step;
    if (++step <= 10) continue;
    EXPECT_EQ(done.decision.plan->predicted_peak_bytes, Bytes(0)) << step;
    EXPECT_TRUE(done.decision.plan->revocable) << step;
  }
  harness.model.spec().encoder_layers = 8;
  HarnessStep last;
  for (const std::int64_t length : lengths(40, 4)) last = harness.step({8, length}, budget);
  EXPECT_EQ(last.outcome.peak_bytes, last.decision.plan->predicted_peak_bytes) << "settled again";
}

// However well it fits: what was learned from short batches alone may not hold for one ten times as
// long, and then kept layers must be there to be revoked.
TEST(ControllerChange, FarBeyondWhatRanNothingIsKeptForGood) {
  Harness harness({});
  const Bytes budget = harness.budget_at(kLongest, 10.0);
  for (const std::int64_t length : {32, 40, 48, 56, 40, 48}) harness.step({8, length}, budget);
  EXPECT_FALSE(harness.step({8, 64}, budget).decision.plan->revocable);
  EXPECT_TRUE(harness.step({8, 512}, budget).decision.plan->revocable);
  EXPECT_TRUE(harness.step({16, 64}, budget).decision.plan->revocable);
  EXPECT_FALSE(harness.step({16, 500}, budget).decision.plan->revocable) << "covered by now";
  EXPECT_FALSE(harness.step({32, 500}, Bytes(0)).decision.plan->revocable) << "without a budget";
}

// Several losses on one graph: thirty recorded steps would teach no more than four.
TEST(ControllerChange, StepsThatCannotBeMeasuredAreNotLearnedFor) {
  Harness harness({});
  const Bytes budget = harness.budget_at(kLongest, 0.5);
  std::vector<int> recorded;
  const auto step = [&](int number, bool repeated) {
    const StepContext context = harness.model.context({8, 64 + 8 * number}, budget);
    const StepDecision decision = harness.controller->begin_step(context);
    StepOutcome outcome = harness.model.run(context, decision);
    outcome.repeated_backward = repeated;
    if (repeated) outcome.segments.clear();
    if (repeated) outcome.peak_bytes = Bytes(5 * outcome.peak_bytes.count());
    if (decision.record) recorded.push_back(number);
    harness.controller->on_structure(harness.model.structure());
    harness.controller->end_step(outcome);
  };
  for (int i = 0; i < 40; ++i) step(i, true);
  EXPECT_EQ(recorded, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(harness.controller->state(), ControllerState::kStandingDown);
  for (int i = 40; i < 55; ++i) step(i, false);
  EXPECT_EQ(harness.controller->state(), ControllerState::kPlanning) << "they are over";
  const Bytes held_back = harness.controller->snapshot().margin_bytes;
  // Every fourth one: planned for, and no reason to leave more room nor to learn anew.
  recorded.clear();
  for (int i = 55; i < 95; ++i) step(i % 20, i % 4 == 0);
  EXPECT_EQ(harness.controller->state(), ControllerState::kPlanning);
  EXPECT_EQ(harness.controller->snapshot().counters.drifts, 0);
  EXPECT_LE(harness.controller->snapshot().margin_bytes, held_back);
  // Two of three: not any more.
  for (int i = 95; i < 110; ++i) step(i % 20, i % 3 != 0);
  EXPECT_EQ(harness.controller->state(), ControllerState::kStandingDown);
}

TEST(ControllerChange, FailedStepsTeachNothing) {
  Harness harness({});
  const Bytes budget = harness.budget_at(kLongest, 0.5);
  for (int i = 0; i < 5; ++i) {
    const StepContext context = harness.model.context({8, 100 + 8 * i}, budget);
    const StepDecision decision = harness.controller->begin_step(context);
    StepOutcome outcome = harness.model.run(context, decision);
    outcome.failed = true;
    harness.controller->end_step(outcome);
  }
  EXPECT_TRUE(harness.controller->snapshot().learned.empty());
}

TEST(ControllerChange, AClassThatRefusesToRecomputeIsKept) {
  Harness harness({});
  const Bytes budget = harness.budget_at(kLongest, 2);
  for (const std::int64_t length : {64, 96, 128, 160}) {
    const StepContext context = harness.model.context({8, length}, budget);
    const StepDecision wanted = harness.controller->begin_step(context);
    Plan kept = *wanted.plan;
    std::ranges::fill(kept.modes, Mode::keep());
    kept.teach_first_of_class = false;
    StepOutcome outcome =
        harness.model.run(context, {std::make_shared<const Plan>(kept), wanted.record});
    outcome.plan = wanted.plan;
    harness.controller->on_structure(harness.model.structure());
    harness.controller->end_step(outcome);
  }
  const auto step = harness.step({8, 200}, budget);
  EXPECT_EQ(step.state, ControllerState::kPlanning);
  EXPECT_EQ(std::ranges::count(step.decision.plan->modes, Mode::keep()), 8);
}

TEST(ControllerChange, StandsDownWhenNothingIsEverMeasured) {
  ControllerOptions options;
  options.warmup_max_steps = 5;
  Harness harness({}, options);
  for (int i = 0; i < 8; ++i) {
    const StepContext context = harness.model.context({8, 100 + 8 * i}, Bytes(1 << 30));
    StepOutcome outcome = harness.model.run(context, harness.controller->begin_step(context));
    outcome.segments.clear();
    harness.controller->on_structure(harness.model.structure());
    harness.controller->end_step(outcome);
  }
  EXPECT_EQ(harness.controller->state(), ControllerState::kStandingDown);
  const auto decision = harness.controller->begin_step({ShapeKey{8, 8}, Bytes(0), Bytes(1 << 30)});
  EXPECT_FALSE(decision.record);
  EXPECT_TRUE(decision.plan->revocable);
}

}  // namespace
}  // namespace pudica::testing
