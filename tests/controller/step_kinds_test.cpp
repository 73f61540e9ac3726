// Steps of several kinds in one run: layers of other classes for batches without a mask, of one
// example, of another mode of the model.
#include "controller/step_kinds.h"

#include <random>
#include <string>

#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

const ShapeKey kLongest{8, 512};

// Two kinds of step that have nothing in common: layers, what they save, heads.
void set_kind(Harness& harness, bool other) {
  SyntheticSpec& spec = harness.model.spec();
  spec.first_class = other ? 2 : 0;
  spec.encoder_layers = other ? 6 : 8;
  spec.inventory_scale = other ? 2 : 1;
  spec.vocabulary = other ? 900 : 300;
}

struct Counts {
  int learning = 0;
  int wrong = 0;  // peaks other than predicted
  int predicted = 0;
};

Counts train(Harness& harness, Bytes budget, int steps, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Counts counts;
  for (const std::int64_t length : lengths(static_cast<std::size_t>(steps), seed)) {
    set_kind(harness, random() % 3 == 0);
    const HarnessStep step = harness.step({8, length}, budget);
    EXPECT_LE(step.outcome.peak_bytes, budget);
    counts.learning += step.state == ControllerState::kLearning ? 1 : 0;
    if (!step.decision.plan->predicts_peak()) continue;
    ++counts.predicted;
    counts.wrong += step.outcome.peak_bytes == step.decision.plan->predicted_peak_bytes ? 0 : 1;
  }
  return counts;
}

TEST(StepKinds, StepsOfTwoKindsInAnyOrderAreLearnedOnceAndPlanned) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    Harness harness({.menu_steps = 2});
    set_kind(harness, true);
    const Bytes budget = harness.budget_at(kLongest, 0.3);
    const Counts first = train(harness, budget, 20, seed);
    EXPECT_LE(first.learning, 7) << seed;
    const Counts then = train(harness, budget, 60, seed + 100);
    EXPECT_EQ(then.learning, 0) << seed;
    EXPECT_GE(then.predicted, 40) << seed;
    EXPECT_EQ(then.wrong, 0) << seed;
    EXPECT_EQ(harness.controller->snapshot().counters.drifts, 0) << seed;
  }
}

// As convolutions do, whose last ones see a single pixel of a small image: nothing but the shape
// tells it before those layers come.
TEST(StepKinds, StepsThatBeginAlikeAndDifferBehindAreKindsThatTheShapeTells) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    Harness harness({.encoder_layers = 5, .decoder_layers = 4, .menu_steps = 2});
    harness.model.spec().decoder_class = 2;
    const Bytes budget = harness.budget_at(kLongest, 0.3);
    const auto train_alike = [&](int steps, std::uint64_t batches) {
      Counts counts;
      for (const std::int64_t length : lengths(static_cast<std::size_t>(steps), batches)) {
        harness.model.spec().decoder_class = length < 200 ? 2 : 0;
        const HarnessStep step = harness.step({8, length}, budget);
        EXPECT_LE(step.outcome.peak_bytes, budget);
        counts.learning += step.state == ControllerState::kLearning ? 1 : 0;
        if (!step.decision.plan->predicts_peak()) continue;
        ++counts.predicted;
        const bool right = step.outcome.peak_bytes == step.decision.plan->predicted_peak_bytes;
        counts.wrong += right ? 0 : 1;
      }
      return counts;
    };
    EXPECT_LE(train_alike(20, seed).learning, 8) << seed;
    const Counts then = train_alike(60, seed + 100);
    EXPECT_EQ(then.learning, 0) << seed;
    EXPECT_GE(then.predicted, 55) << seed;
    EXPECT_LE(then.wrong, 3) << seed << ": shapes between the two, seen for the first time";
    EXPECT_EQ(harness.controller->snapshot().counters.drifts, 0) << seed;
  }
}

TEST(StepKinds, AStepThatRestsIsOfTheKindThatItWasPlannedFor) {
  Harness harness({.encoder_layers = 5, .decoder_layers = 4});
  const Bytes budget = harness.budget_at(kLongest, 2);
  const auto step = [&](std::int64_t length, bool rests = false) {
    harness.model.spec().decoder_class = length < 200 ? 2 : 0;
    return harness.step({8, length}, budget, rests).decision.plan;
  };
  for (int i = 0; i < 12; ++i) {
    step(100 + i);
    step(400 + i);
  }
  const PlanPtr large = step(400);
  const PlanPtr small = step(100);
  ASSERT_NE(large->layer_classes, small->layer_classes);
  for (int i = 0; i < 3; ++i) {
    step(100);
    for (const std::int64_t length : {400, 402}) {
      const PlanPtr rested = step(length, /*rests=*/true);
      EXPECT_EQ(rested->layer_classes, large->layer_classes) << i;
      EXPECT_TRUE(rested->predicts_peak()) << i;
    }
  }
}

TEST(StepKinds, StepsThatRestDoNotMakeLayersThatWereLeftOutOncePassForGood) {
  Harness harness({.encoder_layers = 8});
  const Bytes budget = harness.budget_at(kLongest, 2);
  for (int i = 0; i < 12; ++i) harness.step({8, 400 + i}, budget);
  harness.model.spec().encoder_layers = 6;
  harness.step({8, 300}, budget);
  harness.model.spec().encoder_layers = 8;
  for (int i = 0; i < 6; ++i) {
    const HarnessStep step = harness.step({8, 400}, budget, /*rests=*/true);
    EXPECT_EQ(step.state, ControllerState::kPlanning) << i;
    EXPECT_EQ(step.decision.plan->modes.size(), 8U) << i;
  }
}

TEST(StepKinds, AShapeOfTwoKindsThatBeginAlikeIsPlannedRevocably) {
  Harness harness({.encoder_layers = 5, .decoder_layers = 4});
  const Bytes budget = harness.budget_at(kLongest, 2);
  const auto revocable = [&](std::int64_t length, int decoder_class) {
    harness.model.spec().decoder_class = decoder_class;
    return harness.step({8, length}, budget).decision.plan->revocable;
  };
  for (int i = 0; i < 12; ++i) {
    revocable(400, 0);
    revocable(100 + i, 2);
  }
  EXPECT_FALSE(revocable(400, 0));
  EXPECT_FALSE(revocable(400, 2)) << "nothing told it";
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(revocable(400, 0)) << i;
  EXPECT_FALSE(revocable(100, 2)) << "of one kind";
}

// The shape tells before the first layer does, where it can.
TEST(StepKinds, ADimensionOfOneTellsTheKind) {
  Harness harness({});
  set_kind(harness, true);
  const Bytes budget = harness.budget_at(kLongest, 0.5);
  for (const std::int64_t length : lengths(12, 3)) {
    set_kind(harness, false);
    harness.step({8, length}, budget);
    set_kind(harness, true);
    harness.step({1, length}, budget);
  }
  const HarnessStep step = harness.step({1, 200}, budget);
  EXPECT_EQ(step.first_decision.plan->id, step.decision.plan->id);
  EXPECT_EQ(step.decision.plan->modes.size(), 6U);
  const auto one = harness.controller->estimate({1, 200}, budget);
  const auto many = harness.controller->estimate({8, 200}, budget);
  ASSERT_TRUE(one && many);
  EXPECT_EQ(one->plan->modes.size(), 6U);
  EXPECT_EQ(many->plan->modes.size(), 8U);
}

TEST(StepKinds, ARestoredStateKnowsAllKinds) {
  Harness taught({});
  set_kind(taught, true);
  const Bytes budget = taught.budget_at(kLongest, 0.4);
  train(taught, budget, 30, 7);
  const std::string state = taught.controller->serialize("bert");
  Harness anew({}, {.trusts_restored_states = true});
  ASSERT_TRUE(anew.controller->restore(state, "bert").has_value());
  EXPECT_EQ(anew.controller->serialize("bert"), state);
  const Counts counts = train(anew, budget, 30, 8);
  EXPECT_EQ(counts.learning, 0);
  EXPECT_GT(counts.predicted, 20);
}

// A kind that was never seen is no error of the plan it was taken for.
TEST(StepKinds, AStepOfANewKindIsNotJudgedByAnothersPlan) {
  Harness harness({});
  set_kind(harness, true);
  const Bytes budget = harness.budget_at(kLongest, 0.5);
  set_kind(harness, false);
  for (const std::int64_t length : lengths(12, 3)) harness.step({8, length}, budget);
  const Bytes margin = harness.controller->snapshot().margin_bytes;
  set_kind(harness, true);
  harness.step({8, 256}, budget);
  set_kind(harness, false);
  const HarnessStep after = harness.step({8, 264}, budget);
  EXPECT_EQ(after.state, ControllerState::kPlanning);
  EXPECT_EQ(after.outcome.peak_bytes, after.decision.plan->predicted_peak_bytes);
  EXPECT_LE(harness.controller->snapshot().margin_bytes, margin);
}

// More kinds than there are numbers: the one that did not run for longest is learned anew.
TEST(StepKinds, AreBounded) {
  Harness harness({.encoder_layers = 3});
  const Bytes budget = harness.budget_at(kLongest, 0.5);
  const auto run = [&](int kind) {
    harness.model.spec().first_class = 2 * kind;
    HarnessStep last;
    for (const std::int64_t length : lengths(6, 5)) last = harness.step({8, length}, budget);
    return last;
  };
  const auto most = static_cast<int>(StepKinds::kMost);
  for (int kind = 0; kind < most + 4; ++kind) {
    EXPECT_EQ(run(kind).state, ControllerState::kPlanning) << kind;
  }
  const HarnessStep known = harness.step({8, 320}, budget);
  EXPECT_EQ(known.outcome.peak_bytes, known.decision.plan->predicted_peak_bytes);
  harness.model.spec().first_class = 2 * most;
  EXPECT_EQ(harness.step({8, 328}, budget).state, ControllerState::kPlanning) << "still known";
  harness.model.spec().first_class = 0;
  harness.step({8, 328}, budget);
  EXPECT_EQ(run(0).state, ControllerState::kPlanning) << "given up, and learned anew";
}

TEST(StepKinds, WhatStandsBetweenLayersIsAKindsOwn) {
  const SegmentKey gap{SegmentKind::kGap, 3, Mode::keep(), 0};
  EXPECT_EQ(gap.in_kind(0), gap);
  EXPECT_NE(gap.in_kind(2), gap);
  EXPECT_EQ(gap.in_kind(2).step_kind(), 2);
  EXPECT_EQ(gap.in_kind(2).place(), 3);
  EXPECT_EQ(gap.in_kind(2).in_kind(1), gap.in_kind(1));
  EXPECT_EQ(to_string(gap.in_kind(2)), to_string(gap) + "/step-kind-2");
  const SegmentKey layer{SegmentKind::kForward, 3, Mode::keep(), 0};
  EXPECT_EQ(layer.in_kind(2), layer);
  const SegmentKey optimizer{SegmentKind::kOptimizer, 0, Mode::keep(), 0};
  EXPECT_EQ(optimizer.in_kind(2), optimizer) << "steps of every kind have the same";
}

// The layers of the run were told before the state came, and are not told again.
TEST(StepKinds, AStateRestoredInMidRunIsOfTheKindThatRuns) {
  Harness taught({});
  set_kind(taught, true);
  const Bytes budget = taught.budget_at(kLongest, 0.4);
  train(taught, budget, 30, 7);
  for (const bool other : {true, false}) {
    Harness harness({}, {.trusts_restored_states = true});
    set_kind(harness, other);
    harness.step({8, 100}, budget);
    ASSERT_TRUE(harness.controller->restore(taught.controller->serialize("m"), "m").has_value());
    const StepStructure structure = harness.model.structure();
    for (const std::int64_t length : lengths(8, 4)) {
      const StepContext context = harness.model.context({8, length}, budget);
      StepDecision decision = harness.controller->begin_step(context);
      if (auto found = harness.controller->replan(context, structure.layers[0].layer_class)) {
        decision = *found;
      }
      const StepOutcome outcome = harness.model.run(context, decision);
      harness.controller->end_step(outcome);
    }
    const auto peaks = harness.controller->snapshot().recent_peaks;
    EXPECT_GE(peaks.size(), 5U) << "its steps are judged";
    for (const PeakRecord& peak : peaks) EXPECT_EQ(peak.predicted_bytes, peak.measured_bytes);
  }
}

// With all numbers taken, none of them run yet in this process.
TEST(StepKinds, TheKindUnderWayIsNotGivenUp) {
  Harness taught({.encoder_layers = 2});
  const Bytes budget = taught.budget_at(kLongest, 2);
  for (int kind = 0; kind < static_cast<int>(StepKinds::kMost); ++kind) {
    taught.model.spec().first_class = 2 * kind;
    for (const std::int64_t length : lengths(3, 5)) taught.step({8, length}, budget);
  }
  Harness harness({.encoder_layers = 2}, {.trusts_restored_states = true});
  ASSERT_TRUE(harness.controller->restore(taught.controller->serialize("m"), "m").has_value());
  const StepContext context = harness.model.context({8, 96}, budget);
  harness.controller->begin_step(context);
  ASSERT_TRUE(harness.controller->replan(context, 1000).has_value());
  EXPECT_EQ(harness.controller->snapshot().structure.layers.size(), 2U);
  EXPECT_FALSE(harness.controller->serialize("m").empty());
}

// Batches that differ in their first layer alone.
TEST(StepKinds, StepsThatBeginDifferentlyAreOfTwoKinds) {
  StepKinds kinds([](std::uint8_t number) {
    return std::make_unique<StepKind>(number, PlanStore({}, 0.9), 0.01, PredictorOptions());
  });
  const auto structure_of = [](std::vector<std::uint16_t> classes) {
    StepStructure structure;
    for (const std::uint16_t one : classes) structure.layers.push_back({one, 0, false});
    return structure;
  };
  kinds.restore({structure_of({0, 2, 2}), structure_of({1, 2, 2})});
  EXPECT_EQ(kinds.of_first(0, {8, 64}), &kinds[0]);
  EXPECT_EQ(kinds.of_first(1, {8, 64}), &kinds[1]);
  EXPECT_EQ(kinds.of_first(2, {8, 64}), &kinds[0]) << "the first layer was left out";
  EXPECT_EQ(kinds.of_first(3, {8, 64}), nullptr);
  EXPECT_TRUE(kinds.begin_differently());
  kinds.restore({structure_of({0, 2, 2}), structure_of({0, 3, 3})});
  EXPECT_FALSE(kinds.begin_differently());
  EXPECT_EQ(kinds.of_first(0, {8, 64}), &kinds[0]);
  kinds.ran(kinds[1], {8, 64}, 1);
  kinds.ran(kinds[0], {8, 8}, 2);
  EXPECT_EQ(kinds.of_first(0, {8, 80}), &kinds[1]);
  EXPECT_EQ(&kinds.expected({8, 80}), &kinds[1]);
  EXPECT_EQ(&kinds.expected({8, 10}), &kinds[0]);
}

TEST(KindsByShape, AShapeIsOfTheKindThatItWasOfAndANewOneOfItsNearestNeighbours) {
  KindsByShape kinds;
  const auto any = [](std::size_t) { return true; };
  EXPECT_EQ(kinds.of({8, 64}, any), std::nullopt);
  kinds.note({8, 32}, 0);
  kinds.note({8, 96}, 1);
  EXPECT_EQ(kinds.of({8, 32}, any), 0U);
  EXPECT_EQ(kinds.of({2, 33}, any), 0U);
  EXPECT_EQ(kinds.of({8, 100}, any), 1U);
  kinds.note({1, 100}, 2);
  EXPECT_EQ(kinds.of({1, 32}, any), 2U) << "a dimension of 1 is no small one";
  EXPECT_EQ(kinds.of({2, 100}, any), 1U);
  EXPECT_EQ(kinds.of({8, 32, 7}, any), std::nullopt) << "another number of dimensions";
  kinds.note({8, 32}, 1);
  EXPECT_EQ(kinds.of({8, 32}, any), 1U);
  EXPECT_EQ(kinds.of({8, 32}, [](std::size_t kind) { return kind != 1; }), 2U);
  kinds.forget(1);
  EXPECT_EQ(kinds.of({8, 32}, any), 2U);
}

TEST(KindsByShape, AreBounded) {
  KindsByShape kinds;
  for (std::int64_t length = 1; length < 2000; ++length) kinds.note({8, length}, 5);
  kinds.note({8, 4000}, 6);
  const auto any = [](std::size_t) { return true; };
  EXPECT_EQ(kinds.of({8, 1999}, any), 5U);
  EXPECT_EQ(kinds.of({8, 4000}, any), 6U);
}

TEST(StepKinds, AStepOfMoreLayersThanCanBeToldApartIsNotPlanned) {
  const auto controller = make_controller({});
  StepStructure structure;
  structure.class_names = {"expert"};
  structure.layers.resize(SegmentKey::kMostLayers + 1);
  controller->on_structure(structure);
  EXPECT_EQ(controller->state(), ControllerState::kStandingDown);
  EXPECT_NE(controller->snapshot().state_reason.find("4093"), std::string::npos);
}

}  // namespace
}  // namespace pudica::testing
