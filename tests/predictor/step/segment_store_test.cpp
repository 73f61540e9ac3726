#include "predictor/step/segment_store.h"

#include <gtest/gtest.h>

#include "support/fake_predictor.h"

namespace pudica::testing {
namespace {

SegmentStore fake_store() {
  return SegmentStore([] { return std::make_unique<FakePredictor>(); });
}

std::int64_t nothing_released(const ShapeKey&, bool, const LayerRun&) { return 0; }

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

// What disturbs the machine in a step disturbs all of its layers: they are no two samples.
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

// Heads of steps with other `full` layers would contradict each other where these release bytes.
class HeadsThatRelease : public ::testing::Test {
 protected:
  static std::int64_t release(const ShapeKey&, bool, const LayerRun&) { return 10; }

  static StepOutcome head_with(const ShapeKey& shape, int full_layers, std::int64_t beside = 0) {
    const SegmentKey full{SegmentKind::kForward, 0, Mode::full(), 0};
    const std::int64_t held = 100 * shape[1] + beside;
    StepOutcome outcome = outcome_of(shape, kHead, held - 10 * full_layers, held + 20);
    for (int i = 0; i < full_layers; ++i) outcome.segments.push_back({full, i, {{}, 5, 9, 0}});
    return outcome;
  }

  static std::int32_t full_layers(const SegmentStore::Head& head) {
    return head.dropped.empty() ? 0 : head.dropped.begin()->second;
  }

  // Of the head that is believed at a shape, the bytes that it leaves without what `full` layers
  // release; -1: none is known there, or only what it was at another shape.
  static std::int64_t left_at(const SegmentStore& store, const ShapeKey& shape) {
    const auto head = store.head(0, false, shape);
    if (!head || !head->known.fit) return -1;
    return head->known.estimate.net_bytes + 10 * full_layers(*head);
  }

  SegmentStore store_ = fake_store();
};

TEST_F(HeadsThatRelease, AreKnownApartUntilOneIsKnownAtTwoShapes) {
  store_.observe(head_with({1, 8}, 3), 0, &release);
  store_.observe(head_with({1, 9}, 1), 0, &release);
  EXPECT_EQ(left_at(store_, {1, 8}), 800);
  EXPECT_EQ(left_at(store_, {1, 9}), 900);
  store_.observe(head_with({1, 10}, 1), 0, &release);
  store_.observe(head_with({1, 11}, 2), 0, &release);
  EXPECT_EQ(left_at(store_, {1, 11}), -1) << "another would contradict the one that is known";
  EXPECT_EQ(left_at(store_, {1, 8}), 800) << "the first is not forgotten";
  store_.observe(head_with({1, 11}, 2), 0, nothing_released);
  EXPECT_NE(left_at(store_, {1, 11}), -1) << "they are alike where nothing is released";
}

// A loss that is another from some step on: what a shape showed before is no more believed.
TEST_F(HeadsThatRelease, AreAsTheShapeShowedLast) {
  store_.observe(head_with({1, 8}, 3), 0, &release);
  store_.observe(head_with({1, 8}, 1, 5000), 0, &release);
  EXPECT_EQ(left_at(store_, {1, 8}), 5800);
  store_.observe(head_with({1, 9}, 2, 5000), 0, &release);
  store_.observe(head_with({1, 10}, 2, 5000), 0, &release);
  store_.observe(head_with({1, 8}, 3, 9000), 0, &release);
  EXPECT_EQ(left_at(store_, {1, 8}), -1) << "not wanted, but it is not as it was either";
}

TEST_F(HeadsThatRelease, HoldNoWorkspaceOfTheFirstStep) {
  store_.observe(head_with({1, 8}, 1, 8 << 20), 0, &release);
  store_.observe(head_with({1, 9}, 3), 0, &release);
  EXPECT_EQ(left_at(store_, {1, 8}), -1) << "it left more than a larger batch";
  EXPECT_EQ(left_at(store_, {1, 9}), 900);
}

// Nothing is known of what a class releases just after some of it was forgotten.
TEST_F(HeadsThatRelease, AreTheSameBehindTheVerySameLayersFirst) {
  store_.observe(head_with({1, 8}, 3), 0, &release);
  store_.observe(head_with({1, 9}, 1), 0, &release);
  store_.observe(head_with({1, 10}, 1), 0, nothing_released);
  EXPECT_EQ(left_at(store_, {1, 8}), 800);
  EXPECT_EQ(left_at(store_, {1, 10}), 1000);
}

TEST_F(HeadsThatRelease, KeepTheLayersThatTheirOtherShapesWereBehind) {
  store_.observe(head_with({1, 8}, 2), 0, &release);
  StepOutcome outcome = head_with({1, 9}, 0, -20);
  for (int i = 0; i < 2; ++i) {
    outcome.segments.push_back(
        {{SegmentKind::kForward, 0, Mode::selective(3), 0}, i, {{}, 5, 9, 0}});
  }
  store_.observe(outcome, 0, &release);
  EXPECT_EQ(store_.head(0, false, {1, 9})->dropped.begin()->first.mode, Mode::full());
  EXPECT_EQ(left_at(store_, {1, 8}), 800);
  EXPECT_EQ(left_at(store_, {1, 9}), 900);
}

TEST_F(HeadsThatRelease, GoWithTheModesThatTheyHangOn) {
  StepOutcome outcome = head_with({1, 8}, 0);
  outcome.segments.push_back({{SegmentKind::kForward, 0, Mode::selective(3), 0}, 1, {{}, 5, 9, 0}});
  store_.observe(outcome, 0, &release);
  store_.observe(head_with({1, 9}, 2), 0, &release);
  store_.forget_selective(0, &release);
  EXPECT_FALSE(store_.predict({SegmentKind::kHead, 0, Mode::keep(), 0}, {1, 8}).has_value());
  EXPECT_EQ(left_at(store_, {1, 9}), 900);
  store_.forget_class(0, nothing_released);
  EXPECT_TRUE(store_.head(0, false, {1, 9})->dropped.empty()) << "what released nothing is no loss";
}

TEST_F(HeadsThatRelease, AreBelievedAsTheyWereLast) {
  store_.observe(head_with({1, 8}, 3), 0, &release);
  store_.observe(head_with({1, 8}, 1), 0, &release);
  EXPECT_EQ(full_layers(*store_.head(0, false, {1, 8})), 1);
  store_.observe(head_with({1, 8}, 3), 0, &release);
  EXPECT_EQ(full_layers(*store_.head(0, false, {1, 8})), 3);
}

// What a selective mode drops of them (autocast's casts of weights) is freed there as well.
TEST_F(HeadsThatRelease, AreKnownByEveryModeThatDrops) {
  StepOutcome outcome = head_with({1, 8}, 1);
  outcome.segments.push_back({{SegmentKind::kForward, 0, Mode::selective(2), 0}, 1, {{}, 5, 9, 0}});
  store_.observe(outcome, 0, &release);
  const DroppedLayers expected{{{0, 0, Mode::full()}, 1}, {{0, 0, Mode::selective(2)}, 1}};
  EXPECT_EQ(store_.head(0, false, {1, 8})->dropped, expected);
}

TEST_F(HeadsThatRelease, AreFewAndTheOldestMakesRoom) {
  for (int layers = 0; layers < 5; ++layers) {
    store_.observe(head_with({1, 8 + layers}, layers), 0, &release);
  }
  EXPECT_EQ(left_at(store_, {1, 8}), -1);
  for (int layers = 1; layers < 5; ++layers) {
    EXPECT_EQ(left_at(store_, {1, 8 + layers}), 100 * (8 + layers)) << layers;
  }
}

// Plans are kept as long as the version stays.
TEST_F(HeadsThatRelease, RaiseTheVersionWhenAnotherIsBelieved) {
  SegmentStore store([] { return make_online_predictor({}); });
  store.observe(head_with({1, 8}, 3), 0, &release);
  store.observe(head_with({1, 9}, 1), 0, &release);
  const auto believed = [&] { return full_layers(*store.head(0, false, {1, 30})); };
  ASSERT_EQ(believed(), 1);
  const std::uint64_t before = store.version();
  store.observe(head_with({1, 8}, 3), 0, &release);
  EXPECT_EQ(believed(), 3);
  const std::uint64_t after = store.version();
  EXPECT_GT(after, before);
  store.observe(head_with({1, 8}, 3), 0, &release);
  EXPECT_EQ(store.version(), after) << "the same once more";
}

// A device tells them late, and of the step's head only.
TEST_F(HeadsThatRelease, TakeTheSameTime) {
  store_.observe(head_with({1, 8}, 3), 0, &release);
  store_.observe(head_with({1, 9}, 1), 0, &release);
  store_.observe_times({{kHead, {1, 8}, 3, 7}, {kHead, {1, 9}, 5, 8}});
  EXPECT_EQ(store_.head(0, false, {1, 8})->known.estimate.seconds, 3);
  EXPECT_EQ(store_.head(0, false, {1, 9})->known.estimate.seconds, 5);
}

TEST_F(HeadsThatRelease, SurviveARestart) {
  const auto fresh = [] { return SegmentStore([] { return make_online_predictor({}); }); };
  SegmentStore before = fresh();
  before.observe(head_with({1, 8}, 3), 0, &release);
  before.observe(head_with({1, 9}, 0), 0, &release);
  SegmentStore after = fresh();
  ASSERT_TRUE(after.restore(before.serialize()).has_value());
  EXPECT_EQ(left_at(after, {1, 8}), 800);
  EXPECT_EQ(left_at(after, {1, 9}), 900);
  EXPECT_EQ(full_layers(*after.head(0, false, {1, 30})), 0) << "the latest";
  before.observe(head_with({1, 8}, 3), 0, &release);
  SegmentStore later = fresh();
  ASSERT_TRUE(later.restore(before.serialize()).has_value());
  EXPECT_EQ(full_layers(*later.head(0, false, {1, 30})), 3);
  later.observe(head_with({1, 9}, 0), 0, &release);
  EXPECT_EQ(full_layers(*later.head(0, false, {1, 30})), 0) << "later than what was restored";
  // As versions wrote it that knew one head.
  SegmentStore only = fresh();
  only.observe(head_with({1, 8}, 3), 0, &release);
  std::string old = only.serialize();
  const std::string line = "behind 0 0 1 0 0 full 3";
  ASSERT_NE(old.find(line), std::string::npos);
  old.replace(old.find(line), line.size(), "head 0 0 0 3");
  SegmentStore from_old = fresh();
  ASSERT_TRUE(from_old.restore(old).has_value());
  EXPECT_EQ(left_at(from_old, {1, 8}), 800);
  for (const char* damaged :
       {"behind 99 0 1", "behind 0 7 1", "behind 0 0", "behind 0 0 1 1", "behind 0 1 1",
        "behind 0 0 1 1 2 strange 1", "behind 0 0 1 -1 2 full 1", "head 99 0 0 1", "head 0 0 0"}) {
    SegmentStore none = fresh();
    EXPECT_FALSE(none.restore(std::string(damaged) + "\n" + before.serialize()).has_value())
        << damaged;
  }
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
  store.forget_class(0, nothing_released);
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
