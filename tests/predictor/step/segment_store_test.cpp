#include "predictor/step/segment_store.h"

#include <gtest/gtest.h>

#include "support/fake_predictor.h"

namespace pudica::testing {
namespace {

SegmentStore fake_store() {
  return SegmentStore([] { return std::make_unique<FakePredictor>(); });
}

std::int64_t nothing_released(std::uint16_t, std::uint8_t) { return 0; }

StepOutcome outcome_of(const ShapeKey& shape, SegmentKey key, std::int64_t net, std::int64_t peak) {
  StepOutcome outcome;
  outcome.context.shape = shape;
  outcome.segments.push_back({key, -1, {{}, net, peak, 0}});
  return outcome;
}

const SegmentKey kOptimizer{SegmentKind::kOptimizer, 0, Mode::keep(), 0};
const SegmentKey kHead{SegmentKind::kHead, 0, Mode::keep(), 0};
const SegmentKey kForward{SegmentKind::kForward, 0, Mode::keep(), 0};

StepContext next_step(std::int64_t base, bool gradients = false) {
  return {ShapeKey{1, 8}, Bytes(base), Bytes(0), gradients};
}

TEST(SegmentStore, SkipsTheStepThatMakesTheOptimizersState) {
  SegmentStore store = fake_store();
  store.observe(outcome_of({1, 8}, kOptimizer, -70, 220), 0, nothing_released);
  store.settle(next_step(200));
  EXPECT_FALSE(store.predict(kOptimizer, {1, 8}).has_value());
  store.observe(outcome_of({1, 9}, kOptimizer, -100, 20), 0, nothing_released);
  store.settle(next_step(1));
  EXPECT_EQ(store.predict(kOptimizer, {1, 10})->estimate.peak_bytes, 20);
}

TEST(SegmentStore, AnOptimizerThatAlwaysLeavesBytesIsTakenInTheEnd) {
  SegmentStore store = fake_store();
  for (int i = 0; i < 4; ++i) {
    store.observe(outcome_of({1, 8}, kOptimizer, 200, 220), 0, nothing_released);
    store.settle(next_step(200));
  }
  EXPECT_EQ(store.predict(kOptimizer, {1, 8})->estimate.peak_bytes, 220);
}

TEST(SegmentStore, SkipsMicroStepsInWhichTheOptimizerDidNotRun) {
  SegmentStore store = fake_store();
  for (const std::int64_t peak : {0, 90, 0}) {
    store.observe(outcome_of({1, 8 + peak}, kOptimizer, -5, peak), 0, nothing_released);
    store.settle(next_step(0, true));
  }
  EXPECT_EQ(store.predict(kOptimizer, {1, 9})->estimate.peak_bytes, 90);
}

TEST(SegmentStore, AGapThatWasFilledOnceIsEmptyAgain) {
  SegmentStore store([] { return make_online_predictor({}); });
  const SegmentKey gap{SegmentKind::kGap, 1, Mode::keep(), 0};
  const auto step = [&](std::int64_t length, std::int64_t gap_bytes, bool second_layer) {
    StepOutcome outcome = outcome_of({1, length}, kForward, 10, 10);
    outcome.segments[0].layer = 0;
    if (second_layer) outcome.segments.push_back({kForward, 1, {{}, 10, 10, 0}});
    if (gap_bytes > 0) outcome.segments.push_back({gap, 1, {{gap_bytes}, gap_bytes, gap_bytes, 0}});
    store.observe(outcome, 0, nothing_released);
  };
  step(8, 500, true);
  EXPECT_EQ(store.predict(gap, {1, 8})->estimate.net_bytes, 500);
  step(9, 0, false);
  EXPECT_EQ(store.distinct_shapes(gap), 1) << "the layer behind it was not measured";
  step(9, 0, true);
  step(10, 0, true);
  EXPECT_EQ(store.distinct_shapes(gap), 3);
  const auto again = store.predict(gap, {1, 11});
  EXPECT_TRUE(again->fit && again->estimate.identified);
  EXPECT_EQ(again->estimate.peak_upper_bytes, 0);
}

// Heads of steps with other `full` layers would contradict each other where these release bytes.
// What disturbs the machine in a step disturbs all of its layers: they are no two samples.
// A library's workspace, made in the first layer that needs it.
TEST(SegmentStore, WhatTheFirstStepMadeOnceIsNotExpectedAgain) {
  constexpr std::int64_t kWorkspace = 8 << 20;
  for (const SegmentKey& key : {kForward, kHead}) {
    SegmentStore store = fake_store();
    store.observe(outcome_of({4, 64}, key, 640000 + kWorkspace, 700000 + kWorkspace), 0,
                  nothing_released);
    store.observe(outcome_of({4, 80}, key, 800000, 900000), 0, nothing_released);
    EXPECT_EQ(store.predict(key, {4, 80})->estimate.net_bytes, 800000);
    EXPECT_FALSE(store.predict(key, {4, 64})->fit) << "it is not what the first step showed";
    // What comes later is no first time.
    store.observe(outcome_of({4, 96}, key, 700000, 900000), 0, nothing_released);
    EXPECT_EQ(store.predict(key, {4, 80})->estimate.net_bytes, 800000);
  }
  // A smaller batch shows nothing.
  SegmentStore store = fake_store();
  store.observe(outcome_of({4, 64}, kForward, 64 << 20, 70 << 20), 0, nothing_released);
  store.observe(outcome_of({4, 32}, kForward, 32 << 20, 35 << 20), 0, nothing_released);
  EXPECT_EQ(store.predict(kForward, {4, 64})->estimate.net_bytes, 64 << 20);
}

TEST(SegmentStore, LayersOfOneStepAreOneSampleOfTheirTime) {
  SegmentStore store = fake_store();
  StepOutcome outcome = outcome_of({1, 8}, kForward, 10, 10);
  outcome.segments[0].sample.seconds = 1;
  outcome.segments.push_back({kForward, 1, {{}, 10, 10, 3}});
  store.observe(outcome, 0, nothing_released);
  EXPECT_EQ(store.predictor().predict(kForward, {1, 8})->seconds, 2);
  store.observe_times({{kForward, {1, 8}, 3, 7}, {kForward, {1, 8}, 5, 7}});
  EXPECT_EQ(store.predictor().predict(kForward, {1, 8})->seconds, 4);
}

TEST(SegmentStore, KeepsHeadsOfOnePlanWhenLayersReleaseBytesInThem) {
  const auto release = [](std::uint16_t, std::uint8_t) { return std::int64_t{10}; };
  const SegmentKey full{SegmentKind::kForward, 0, Mode::full(), 0};
  const auto head_with = [&](const ShapeKey& shape, int full_layers) {
    StepOutcome outcome = outcome_of(shape, kHead, 100 - 10 * full_layers, 120);
    for (int i = 0; i < full_layers; ++i) outcome.segments.push_back({full, i, {{}, 5, 9, 0}});
    return outcome;
  };
  SegmentStore store = fake_store();
  store.observe(head_with({1, 8}, 3), 0, release);
  EXPECT_EQ(store.head_full_layers(0, false).begin()->second, 3);
  store.observe(head_with({1, 9}, 1), 0, release);
  EXPECT_EQ(store.distinct_shapes(kHead), 1) << "one sample only: the new one is as good";
  EXPECT_EQ(store.head_full_layers(0, false).begin()->second, 1);
  store.observe(head_with({1, 10}, 1), 0, release);
  store.observe(head_with({1, 11}, 2), 0, release);
  EXPECT_EQ(store.distinct_shapes(kHead), 2);
  store.observe(head_with({1, 11}, 2), 0, nothing_released);
  EXPECT_EQ(store.distinct_shapes(kHead), 3);
}

TEST(SegmentStore, ForgetsWhatDeviatesOnlyWhenAsked) {
  SegmentStore store = fake_store();
  const ShapeKey shape{1, 8};
  store.observe(outcome_of(shape, kForward, 100000, 200000), 0, nothing_released);
  store.observe(outcome_of({1, 9}, kForward, 100000, 200000), 0, nothing_released);
  auto report = store.observe(outcome_of(shape, kForward, 100000, 201000), 0.01, nothing_released);
  EXPECT_EQ(report.forgotten, 0);
  report = store.observe(outcome_of(shape, kForward, 150000, 300000), 0.01, nothing_released);
  EXPECT_EQ(report.forgotten, 1);
  EXPECT_EQ(store.distinct_shapes(kForward), 1);
  EXPECT_EQ(store.predict(kForward, shape)->estimate.net_bytes, 150000);
}

TEST(SegmentStore, ASampleAtTheVeryShapeIsFitAndIdentified) {
  SegmentStore store = fake_store();
  store.observe(outcome_of({1, 8}, kForward, 10, 20), 0, nothing_released);
  EXPECT_TRUE(store.predict(kForward, {1, 8})->fit);
  EXPECT_FALSE(store.predict(kForward, {1, 9})->fit);
  EXPECT_FALSE(store.predict(kHead, {1, 8}).has_value());
}

TEST(SegmentStore, AGapsEpilogueIsEmptyWhereItsLayersWereMeasuredWithoutIt) {
  SegmentStore store([] { return make_online_predictor({}); });
  const SegmentKey epilogue{SegmentKind::kEpilogue, 1, Mode::keep(), 0};
  const SegmentKey backward{SegmentKind::kBackward, 0, Mode::keep(), 0};
  const auto step = [&](std::int64_t length, std::int64_t bytes, bool second_layer) {
    StepOutcome outcome = outcome_of({1, length}, backward, 10, 10);
    outcome.segments[0].layer = 0;
    if (second_layer) outcome.segments.push_back({backward, 1, {{}, 10, 10, 0}});
    if (bytes > 0) outcome.segments.push_back({epilogue, -1, {{bytes}, bytes, bytes, 0}});
    store.observe(outcome, 0, nothing_released);
  };
  step(8, 500, true);
  step(9, 0, false);
  EXPECT_EQ(store.distinct_shapes(epilogue), 1) << "the layer behind it was not measured";
  step(9, 0, true);
  EXPECT_EQ(store.distinct_shapes(epilogue), 2);
}

// What nobody reads, and was still there, hangs on the layers before: the plan's.
TEST(SegmentStore, OfWhatIsToldBothWaysTheHigherPeakIsPlannedFor) {
  SegmentStore store = fake_store();
  StepOutcome outcome = outcome_of({1, 8}, kForward, 10, 140);
  outcome.segments[0].layer = 1;
  outcome.segments[0].behind_holder = SegmentSample{{}, 10, 40, 0};
  store.observe(outcome, 0, nothing_released);
  EXPECT_EQ(store.predict(kForward, {1, 8})->estimate.peak_bytes, 40);
  const auto planned = store.predict_with_unread(kForward, {1, 8});
  ASSERT_TRUE(planned.has_value());
  EXPECT_EQ(planned->estimate.peak_bytes, 140);
  EXPECT_EQ(planned->estimate.peak_upper_bytes, 140);
  EXPECT_EQ(planned->estimate.net_bytes, 10);
  EXPECT_EQ(store.variants(0, Mode::keep()), std::vector<std::uint8_t>{0}) << "no place in a class";
  EXPECT_FALSE(store.predict_with_unread(kHead, {1, 8}).has_value());
}

TEST(SegmentStore, ForgetsClassesAndGapsOfLayersThatChanged) {
  SegmentStore store = fake_store();
  const SegmentKey other{SegmentKind::kBackward, 1, Mode::keep(), 0};
  const SegmentKey gap0{SegmentKind::kGap, 0, Mode::keep(), 0};
  const SegmentKey gap3{SegmentKind::kGap, 3, Mode::keep(), 0};
  const SegmentKey epilogue{SegmentKind::kEpilogue, 0, Mode::keep(), 0};
  const SegmentKey epilogue3{SegmentKind::kEpilogue, 3, Mode::keep(), 0};
  for (const SegmentKey& key : {kForward, other, gap0, gap3, epilogue, epilogue3}) {
    store.observe(outcome_of({1, 8}, key, 10, 20), 0, nothing_released);
  }
  store.forget_class(0);
  store.forget_gaps_from(0, 1);
  EXPECT_FALSE(store.predict(kForward, {1, 8}).has_value());
  EXPECT_TRUE(store.modes(0).empty());
  EXPECT_TRUE(store.predict(other, {1, 8}).has_value());
  EXPECT_TRUE(store.predict(gap0, {1, 8}).has_value());
  EXPECT_FALSE(store.predict(gap3, {1, 8}).has_value());
  EXPECT_TRUE(store.predict(epilogue, {1, 8}).has_value()) << "the step's own";
  EXPECT_FALSE(store.predict(epilogue3, {1, 8}).has_value());
}

}  // namespace
}  // namespace pudica::testing
