#include "predictor/times/relative_times.h"

#include <limits>

#include <gtest/gtest.h>

#include "predictor/step/segment_store.h"
#include "predictor/times/pace.h"

namespace pudica {
namespace {

RelativeTimes fresh() {
  return RelativeTimes([] { return make_online_predictor({}); });
}

const SegmentKey kForward{SegmentKind::kForward, 0, Mode::keep(), 0};
const SegmentKey kFull{SegmentKind::kRecompute, 0, Mode::full(), 0};
const SegmentKey kOffload{SegmentKind::kRecompute, 0, Mode::offload(), 0};

TEST(RelativeTimes, NothingIsKnownWithoutAForward) {
  RelativeTimes times = fresh();
  times.observe(kFull, {8, 64}, 1e-3, 0);
  EXPECT_FALSE(times.predict(kFull, {8, 64}).has_value());
  times.observe_forward(0, {8, 64}, 2e-3);
  times.observe(kFull, {8, 64}, 1e-3, 0);
  EXPECT_NEAR(times.predict(kFull, {8, 64})->seconds, 1e-3, 1e-6);
  EXPECT_NEAR(times.predict(kForward, {8, 64})->seconds, 2e-3, 1e-6);
  EXPECT_FALSE(times.predict({SegmentKind::kHead, 0, Mode::keep(), 0}, {8, 64}).has_value());
  EXPECT_FALSE(times.predict({SegmentKind::kRecompute, 1, Mode::full(), 0}, {8, 64}).has_value());
}

// Also where the batch times the length is more than a time can be in seconds.
TEST(RelativeTimes, OneRatioHoldsAtAllSizes) {
  for (const std::int64_t scale : {1, 1000, 100000}) {
    RelativeTimes times = fresh();
    for (std::int64_t i = 1; i <= 6; ++i) {
      const ShapeKey shape{8, 64 * scale * i};
      const double pace = i % 2 == 0 ? 1.0 : 1.7;
      times.observe_forward(0, shape, pace * 1e-3 * static_cast<double>(i));
      times.observe(kFull, shape, pace * 0.4e-3 * static_cast<double>(i),
                    pace * 1e-3 * static_cast<double>(i));
    }
    for (const std::int64_t i : {1, 4, 8}) {
      const ShapeKey shape{8, 64 * scale * i};
      const double forward = times.predict(kForward, shape)->seconds;
      EXPECT_NEAR(times.predict(kFull, shape)->seconds / forward, 0.4, 1e-3) << scale << ' ' << i;
    }
  }
}

TEST(RelativeTimes, AnotherNumberOfDimensionsIsAnotherModel) {
  RelativeTimes times = fresh();
  times.observe_forward(0, {8, 64}, 1e-3);
  times.observe(kFull, {8, 64}, 1e-3, 1e-3);
  times.observe_forward(0, {8, 64, 32}, 2e-3);
  EXPECT_FALSE(times.predict(kFull, {8, 64, 32}).has_value());
  times.observe(kFull, {8, 64, 32}, 1e-3, 2e-3);
  EXPECT_NEAR(times.predict(kFull, {8, 64, 32})->seconds, 1e-3, 1e-6);
}

TEST(RelativeTimes, ForgetsSegmentsAndClasses) {
  RelativeTimes times = fresh();
  for (std::uint16_t layer_class = 0; layer_class < 2; ++layer_class) {
    times.observe_forward(layer_class, {8, 64}, 1e-3);
    times.observe({SegmentKind::kRecompute, layer_class, Mode::full(), 0}, {8, 64}, 1e-3, 1e-3);
  }
  times.forget(kFull);
  EXPECT_FALSE(times.predict(kFull, {8, 64}).has_value());
  EXPECT_TRUE(times.predict(kForward, {8, 64}).has_value());
  times.forget_class(1);
  EXPECT_FALSE(times.predict({SegmentKind::kForward, 1, Mode::keep(), 0}, {8, 64}).has_value());
  EXPECT_FALSE(times.restore("damaged").has_value());
  EXPECT_TRUE(times.predict(kForward, {8, 64}).has_value());
}

// A recorded step times a layer's forward with all that its mode adds to it; what offloading adds
// is told as its recovery's time.
TEST(RelativeTimes, AForwardThatCopiesOutIsNoMeasureOfOne) {
  SegmentStore store([] { return make_online_predictor({}); });
  const auto segment = [](SegmentKind kind, Mode mode, std::int32_t layer, double seconds) {
    return SegmentObservation{{kind, 0, mode, 0}, layer, {{}, 0, 0, seconds}};
  };
  StepOutcome outcome;
  outcome.context.shape = {8, 64};
  outcome.segments = {segment(SegmentKind::kForward, Mode::keep(), 0, 1e-3),
                      segment(SegmentKind::kForward, Mode::offload(), 1, 4e-3),
                      segment(SegmentKind::kRecompute, Mode::offload(), 1, 5e-3)};
  store.observe(outcome, 0);
  EXPECT_NEAR(store.predict(kForward, {8, 64})->estimate.seconds, 1e-3, 1e-6);
  store.observe_times({8, 64}, {{0, 2e-3}}, {});  // the machine is half as fast in another step
  const double forward = store.predict(kForward, {8, 64})->estimate.seconds;
  EXPECT_GT(forward, 1.1e-3);
  EXPECT_NEAR(store.predict(kOffload, {8, 64})->estimate.seconds / forward, 5.0, 0.01);
}

// A machine that other programs slow down does so for minutes: what is to come is reckoned at the
// pace of the last steps, prices of modes as well, and they keep their order.
TEST(RelativeTimes, AreOfTheMachinesPace) {
  RelativeTimes times = fresh();
  const auto step = [&times](std::int64_t length, double pace) {
    const double seconds = pace * 1e-5 * static_cast<double>(length);
    times.observe_forward(0, {8, length}, seconds);
    times.observe(kFull, {8, length}, 0.8 * seconds, seconds);
  };
  for (std::int64_t i = 0; i < 200; ++i) step(64 + i % 7 * 16, 1);
  EXPECT_EQ(times.pace(), 1);
  const std::uint64_t before = times.version();
  for (std::int64_t i = 0; i < 15; ++i) step(64 + i % 5 * 16, 2);
  EXPECT_NEAR(times.pace(), 2, 0.2);
  EXPECT_GT(times.version(), before);
  EXPECT_NEAR(times.predict(kForward, {8, 100})->seconds, 2e-3, 3e-4);
  EXPECT_NEAR(times.predict(kFull, {8, 100})->seconds, 1.6e-3, 2.4e-4);
  // Where the step's own forward is not known, it went at that pace, too.
  times.observe(kFull, {8, 100}, 1.6e-3, 0);
  const double share =
      times.predict(kFull, {8, 100})->seconds / times.predict(kForward, {8, 100})->seconds;
  EXPECT_NEAR(share, 0.8, 0.02);
}

TEST(Pace, IsRoundedAndPlansAreMadeAnewOnlyWhenItIsFarFromTheirs) {
  Pace pace;
  for (int i = 0; i < 4; ++i) pace.note(3);
  EXPECT_EQ(pace.value(), 1) << "four are too few";
  pace.note(3);
  EXPECT_EQ(pace.value(), 3);
  EXPECT_EQ(pace.changes(), 1);
  for (int i = 0; i < 100; ++i) pace.note(i % 2 == 0 ? 2.9 : 3.1);
  EXPECT_EQ(pace.value(), 3);
  for (int i = 0; i < 15; ++i) pace.note(3.2);
  EXPECT_EQ(pace.value(), 3.2);
  pace.note(-1);
  pace.note(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(pace.changes(), 1);
  for (int i = 0; i < 7; ++i) pace.note(30);
  EXPECT_LT(pace.value(), 4) << "stalls are no pace";
  for (int i = 0; i < 15; ++i) pace.note(.5);
  EXPECT_EQ(pace.value(), .5);
  for (const double none : {0., -1., 1e300, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_FALSE(pace.set(none));
  }
  EXPECT_EQ(pace.value(), .5);
  EXPECT_TRUE(pace.set(1.5));
  EXPECT_EQ(pace.value(), 1.5);
}

}  // namespace
}  // namespace pudica
