#include "controller/relative_times.h"

#include <gtest/gtest.h>

#include "controller/segment_store.h"

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
  store.observe(outcome, 0, [](std::uint16_t, std::uint8_t) { return std::int64_t{0}; });
  EXPECT_NEAR(store.predict(kForward, {8, 64})->estimate.seconds, 1e-3, 1e-6);
  store.observe_times({8, 64}, {{0, 2e-3}}, {});  // the machine is half as fast in another step
  const double forward = store.predict(kForward, {8, 64})->estimate.seconds;
  EXPECT_GT(forward, 1.1e-3);
  EXPECT_NEAR(store.predict(kOffload, {8, 64})->estimate.seconds / forward, 5.0, 0.01);
}

}  // namespace
}  // namespace pudica
