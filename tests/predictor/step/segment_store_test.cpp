#include "predictor/step/segment_store.h"

#include <gtest/gtest.h>

#include "support/fake_predictor.h"

namespace pudica::testing {
namespace {

SegmentStore fake_store() {
  return SegmentStore([] { return std::make_unique<FakePredictor>(); });
}

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
  store.observe(outcome_of({1, 8}, kOptimizer, -70, 220), 0);
  store.settle(next_step(200));
  EXPECT_FALSE(store.predict(kOptimizer, {1, 8}).has_value());
  store.observe(outcome_of({1, 9}, kOptimizer, -100, 20), 0);
  store.settle(next_step(1));
  EXPECT_EQ(store.predict(kOptimizer, {1, 10})->estimate.peak_bytes, 20);
}

// Casts that go behind it hide what it left from the next step's base.
TEST(SegmentStore, SkipsTheStepThatMakesTheStateWhereCastsGo) {
  for (const bool casts : {false, true}) {
    SegmentStore store = fake_store();
    StepOutcome outcome = outcome_of({1, 8}, kOptimizer, 1400, 1500);
    outcome.context.casts_present = casts;
    store.observe(outcome, 0);
    store.settle(next_step(300));
    EXPECT_EQ(store.predict(kOptimizer, {1, 8}).has_value(), !casts);
  }
}

TEST(SegmentStore, AnOptimizerThatAlwaysLeavesBytesIsTakenInTheEnd) {
  SegmentStore store = fake_store();
  for (int i = 0; i < 4; ++i) {
    store.observe(outcome_of({1, 8}, kOptimizer, 200, 220), 0);
    store.settle(next_step(200));
  }
  EXPECT_EQ(store.predict(kOptimizer, {1, 8})->estimate.peak_bytes, 220);
}

TEST(SegmentStore, SkipsMicroStepsInWhichTheOptimizerDidNotRun) {
  SegmentStore store = fake_store();
  for (const std::int64_t peak : {0, 90, 0}) {
    store.observe(outcome_of({1, 8 + peak}, kOptimizer, -5, peak), 0);
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
    store.observe(outcome, 0);
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

// A library's workspace, made in the first layer that needs it.
TEST(SegmentStore, WhatTheFirstStepMadeOnceIsNotExpectedAgain) {
  constexpr std::int64_t kWorkspace = 8 << 20;
  for (const SegmentKey& key : {kForward, kHead}) {
    SegmentStore store = fake_store();
    store.observe(outcome_of({4, 64}, key, 640000 + kWorkspace, 700000 + kWorkspace), 0);
    store.observe(outcome_of({4, 80}, key, 800000, 900000), 0);
    EXPECT_EQ(store.predict(key, {4, 80})->estimate.net_bytes, 800000);
    EXPECT_FALSE(store.predict(key, {4, 64})->fit) << "it is not what the first step showed";
    // What comes later is no first time.
    store.observe(outcome_of({4, 96}, key, 700000, 900000), 0);
    EXPECT_EQ(store.predict(key, {4, 80})->estimate.net_bytes, 800000);
  }
  // A smaller batch shows nothing.
  SegmentStore store = fake_store();
  store.observe(outcome_of({4, 64}, kForward, 64 << 20, 70 << 20), 0);
  store.observe(outcome_of({4, 32}, kForward, 32 << 20, 35 << 20), 0);
  EXPECT_EQ(store.predict(kForward, {4, 64})->estimate.net_bytes, 64 << 20);
}

// What disturbs the machine in a step disturbs all of its layers: they are no two samples.
TEST(SegmentStore, LayersOfOneStepAreOneSampleOfTheirTime) {
  SegmentStore store = fake_store();
  StepOutcome outcome = outcome_of({1, 8}, kForward, 10, 10);
  outcome.segments[0].sample.seconds = 1;
  outcome.segments.push_back({kForward, 1, {{}, 10, 10, 3}});
  store.observe(outcome, 0);
  EXPECT_EQ(store.predictor().predict(kForward, {1, 8})->seconds, 2);
  store.observe_times({{kForward, {1, 8}, 3, 7}, {kForward, {1, 8}, 5, 7}});
  EXPECT_EQ(store.predictor().predict(kForward, {1, 8})->seconds, 4);
}

StepOutcome released_in(const ShapeKey& shape, Mode mode, std::int64_t bytes) {
  StepOutcome outcome = outcome_of(shape, {SegmentKind::kForward, 0, mode, 0}, 2 * bytes, 900);
  outcome.segments[0].released_bytes = bytes;
  return outcome;
}

TEST(SegmentStore, KnowsWhatTheHeadFreedByClassModeAndVariant) {
  SegmentStore store = fake_store();
  store.observe(released_in({1, 8}, Mode::full(), 70), 0);
  store.observe(released_in({1, 8}, Mode::keep(), 0), 0);
  EXPECT_EQ(store.released_bytes(0, Mode::full(), 0, {1, 8}), 70);
  EXPECT_EQ(store.released_bytes(0, Mode::keep(), 0, {1, 8}), 0) << "which is known";
  EXPECT_EQ(store.released_bytes(0, Mode::full(), 1, {1, 8}), std::nullopt);
  EXPECT_EQ(store.released_bytes(1, Mode::full(), 0, {1, 8}), std::nullopt);
  EXPECT_EQ(store.released_bytes(0, Mode::selective(1), 0, {1, 8}), std::nullopt);
}

// Told to be more than it is, it would be missing.
TEST(SegmentStore, WhatTheHeadFreedAtOneShapeIsNoMoreAtALargerOne) {
  const auto fresh = [] { return SegmentStore([] { return make_online_predictor({}); }); };
  SegmentStore store = fresh();
  store.observe(released_in({4, 80}, Mode::full(), 8000), 0);
  EXPECT_EQ(store.released_bytes(0, Mode::full(), 0, {4, 160}), 8000);
  EXPECT_LE(*store.released_bytes(0, Mode::full(), 0, {4, 40}), 8000);
  store.observe(released_in({4, 160}, Mode::full(), 16000), 0);
  store.observe(released_in({4, 100}, Mode::full(), 10000), 0);
  EXPECT_EQ(store.released_bytes(0, Mode::full(), 0, {4, 120}), 12000) << "keys and values";
  SegmentStore after = fresh();
  ASSERT_TRUE(after.restore(store.serialize()).has_value());
  EXPECT_EQ(after.released_bytes(0, Mode::full(), 0, {4, 120}), 12000);
  store.observe(released_in({4, 80}, Mode::selective(2), 8), 0);
  store.forget_selective(0);
  EXPECT_EQ(store.released_bytes(0, Mode::selective(2), 0, {4, 80}), std::nullopt);
  store.forget_class(0);
  EXPECT_EQ(store.released_bytes(0, Mode::full(), 0, {4, 80}), std::nullopt);
}

// Of versions whose heads held what layers released: they would contradict the new ones.
TEST(SegmentStore, AnOlderStatesHeadsAreLearnedAnew) {
  const auto fresh = [] { return SegmentStore([] { return make_online_predictor({}); }); };
  SegmentStore store = fresh();
  const SegmentKey until_return = SegmentKey::until_return(3);
  store.observe(outcome_of({1, 8}, kHead, 100, 200), 0);
  store.observe(outcome_of({1, 8}, until_return, 50, 100), 0);
  store.observe(outcome_of({1, 8}, kForward, 100, 200), 0);
  const std::string state = store.serialize();
  SegmentStore after = fresh();
  ASSERT_TRUE(after.restore(state).has_value());
  EXPECT_TRUE(after.predict(kHead, {1, 8}));
  EXPECT_TRUE(after.predict(until_return, {1, 8}));
  const std::string line = "heads-apart\n";
  ASSERT_NE(state.find(line), std::string::npos);
  for (const char* before : {"", "behind 0 0 1 0 0 full 3\nbehind 0 1 2\n", "head 0 0 0 3\n"}) {
    std::string old = state;
    old.replace(old.find(line), line.size(), before);
    SegmentStore from_old = fresh();
    ASSERT_TRUE(from_old.restore(old).has_value()) << before;
    EXPECT_FALSE(from_old.predict(kHead, {1, 8})) << before;
    EXPECT_FALSE(from_old.only_shape(kHead)) << before;
    EXPECT_FALSE(from_old.predict(until_return, {1, 8})) << before << ": a part of the head";
    EXPECT_TRUE(from_old.predict(kForward, {1, 8})) << before;
  }
}

TEST(SegmentStore, ForgetsWhatDeviatesOnlyWhenAsked) {
  SegmentStore store = fake_store();
  const ShapeKey shape{1, 8};
  store.observe(outcome_of(shape, kForward, 100000, 200000), 0);
  store.observe(outcome_of({1, 9}, kForward, 100000, 200000), 0);
  auto report = store.observe(outcome_of(shape, kForward, 100000, 201000), 0.01);
  EXPECT_EQ(report.forgotten, 0);
  report = store.observe(outcome_of(shape, kForward, 150000, 300000), 0.01);
  EXPECT_EQ(report.forgotten, 1);
  EXPECT_EQ(store.distinct_shapes(kForward), 1);
  EXPECT_EQ(store.predict(kForward, shape)->estimate.net_bytes, 150000);
}

// Predictions are noted until something is learned or forgotten, in whichever way.
TEST(SegmentStore, WhatWasPredictedGivesWayToWhatIsLearned) {
  SegmentStore store([] { return make_online_predictor({}); });
  const ShapeKey asked{1, 8};
  const auto peak = [&] {
    const auto known = store.predict(kForward, asked);
    return known ? known->estimate.peak_bytes : -1;
  };
  EXPECT_EQ(peak(), -1);
  store.observe(outcome_of(asked, kForward, 10, 20), 0);
  EXPECT_EQ(peak(), 20);
  store.observe(outcome_of(asked, kForward, 10, 30), 0);
  EXPECT_EQ(peak(), 30);
  const std::string state = store.serialize();
  EXPECT_DOUBLE_EQ(store.predict(kForward, asked)->estimate.seconds, 0);
  store.observe_times(asked, {{0, 0.25}}, {});
  EXPECT_GT(store.predict(kForward, asked)->estimate.seconds, 0);
  store.observe_times({{kForward, asked, 0.5, 1}});
  EXPECT_GT(store.predict(kForward, asked)->estimate.seconds, 0.26);
  store.forget_class(0);
  EXPECT_EQ(peak(), -1);
  ASSERT_TRUE(store.restore(state).has_value());
  EXPECT_EQ(peak(), 30);
  EXPECT_FALSE(store.predict(kOptimizer, asked).has_value());
  store.observe(outcome_of(asked, kOptimizer, 0, 40), 0);
  store.settle(next_step(0));
  EXPECT_TRUE(store.predict(kOptimizer, asked).has_value());
}

TEST(SegmentStore, ASampleAtTheVeryShapeIsFitAndIdentified) {
  SegmentStore store = fake_store();
  store.observe(outcome_of({1, 8}, kForward, 10, 20), 0);
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
    store.observe(outcome, 0);
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
  store.observe(outcome, 0);
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
    store.observe(outcome_of({1, 8}, key, 10, 20), 0);
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
