// Times: pooled, noisy, with stalls.
#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "pudica/predictor.h"

namespace pudica {
namespace {

constexpr std::uint64_t kSeed = 7;
const SegmentKey kForward{SegmentKind::kForward, 0, Mode::keep(), 0};

// Seconds of a layer as measured on a CPU: constant, linear and quadratic parts.
double layer_seconds(const ShapeKey& shape) {
  const auto rows = static_cast<double>(shape[0]) * static_cast<double>(shape[1]);
  return 1.1e-4 + 7.3e-6 * rows + 7.6e-9 * rows * static_cast<double>(shape[1]);
}

class TimedPredictor {
 public:
  explicit TimedPredictor(const PredictorOptions& options = {})
      : predictor_(make_online_predictor(options)) {}

  ShapeKey random_shape() {
    return {std::uniform_int_distribution<std::int64_t>(4, 16)(random_),
            std::uniform_int_distribution<std::int64_t>(40, 384)(random_)};
  }
  double noise(double relative) {
    return std::max(0.3, std::normal_distribution<double>(1, relative)(random_));
  }
  bool chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  void observe(const ShapeKey& shape, double seconds) {
    predictor_->observe(kForward, shape, {{}, 0, 0, seconds});
  }
  SegmentEstimate predict(const ShapeKey& shape) { return *predictor_->predict(kForward, shape); }
  Predictor& get() { return *predictor_; }

 private:
  std::mt19937_64 random_{kSeed};
  std::unique_ptr<Predictor> predictor_;
};

double relative_error(TimedPredictor& timed, const ShapeKey& shape) {
  return std::abs(timed.predict(shape).seconds / layer_seconds(shape) - 1);
}

TEST(TimeFit, FollowsTheLayerThroughNoise) {
  TimedPredictor timed;
  for (int i = 0; i < 300; ++i) {
    const ShapeKey shape = timed.random_shape();
    timed.observe(shape, layer_seconds(shape) * timed.noise(0.05));
  }
  for (int i = 0; i < 50; ++i) {
    const ShapeKey shape = timed.random_shape();
    EXPECT_LT(relative_error(timed, shape), 0.05) << shape.to_string() << " seed " << kSeed;
  }
  const SegmentEstimate estimate = timed.predict({8, 200});
  EXPECT_GT(estimate.seconds_sigma, 0.01 * estimate.seconds);
  EXPECT_LT(estimate.seconds_sigma, 0.2 * estimate.seconds);
}

TEST(TimeFit, TimesAloneAreAddedToWhatIsKnown) {
  TimedPredictor timed;
  timed.get().observe_time(kForward, {8, 100}, 1.0);
  EXPECT_FALSE(timed.get().predict(kForward, {8, 100}).has_value()) << "its bytes are not known";
  timed.observe({8, 60}, 3 * layer_seconds({8, 60}));  // one stall, and nothing else
  timed.get().observe_time(kForward, {8, 60, 4}, 1.0);
  for (int i = 0; i < 100; ++i) {
    const ShapeKey shape = timed.random_shape();
    timed.get().observe_time(kForward, shape, layer_seconds(shape) * timed.noise(0.05));
  }
  EXPECT_LT(relative_error(timed, {8, 300}), 0.05);
  EXPECT_EQ(timed.get().distinct_shapes(kForward), 1) << "of bytes nothing was said";
}

TEST(TimeFit, StallsOfTheMachineDoNotMoveIt) {
  TimedPredictor timed;
  for (int i = 0; i < 300; ++i) {
    const ShapeKey shape = timed.random_shape();
    const double stall = timed.chance(0.1) ? 3.0 : 1.0;
    timed.observe(shape, layer_seconds(shape) * timed.noise(0.03) * stall);
  }
  for (int i = 0; i < 50; ++i) {
    const ShapeKey shape = timed.random_shape();
    EXPECT_LT(relative_error(timed, shape), 0.12) << shape.to_string() << " seed " << kSeed;
  }
}

TEST(TimeFit, AStallAmongTheFirstSamplesIsOutvoted) {
  TimedPredictor timed;
  for (int i = 0; i < 8; ++i) {
    const ShapeKey shape = timed.random_shape();
    timed.observe(shape, layer_seconds(shape) * (i == 0 ? 10 : 1));
  }
  EXPECT_LT(relative_error(timed, {8, 200}), 0.15);
}

TEST(TimeFit, OneShapeIsReadAsProportionalToTheVolume) {
  TimedPredictor timed;
  timed.observe({8, 100}, 0.01);
  EXPECT_NEAR(timed.predict({8, 100}).seconds, 0.01, 1e-4);
  EXPECT_NEAR(timed.predict({8, 200}).seconds, 0.02, 1e-3);
  EXPECT_NEAR(timed.predict({4, 100}).seconds, 0.005, 5e-4);
}

// What is measured in few steps, each with what the machine did in it, is no reason to take a time
// for anything but proportional to the volume: a free fit is off by half at the ends.
TEST(TimeFit, FewNoisySamplesDoNotBendIt) {
  std::vector<double> errors;
  for (int seed = 0; seed < 40; ++seed) {
    TimedPredictor timed;
    for (int skipped = 0; skipped < 20 * seed; ++skipped) (void)timed.random_shape();
    for (int i = 0; i < 6; ++i) {
      const ShapeKey shape{8, timed.random_shape()[1]};
      timed.observe(shape, 1e-6 * static_cast<double>(8 * shape[1]) * timed.noise(0.15));
    }
    for (const std::int64_t length : {50, 200, 380}) {
      const double truth = 1e-6 * static_cast<double>(8 * length);
      errors.push_back(std::abs(timed.predict({8, length}).seconds / truth - 1));
    }
  }
  std::ranges::sort(errors);
  EXPECT_LT(errors[errors.size() / 2], 0.07);
  EXPECT_LT(errors[errors.size() * 9 / 10], 0.2);
}

TEST(TimeFit, FewQuietSamplesDo) {
  TimedPredictor timed;
  for (int i = 0; i < 8; ++i) {
    const ShapeKey shape{8, timed.random_shape()[1]};
    timed.observe(shape, layer_seconds(shape) * timed.noise(0.01));
  }
  for (const std::int64_t length : {50, 200, 380}) {
    EXPECT_LT(relative_error(timed, {8, length}), 0.1) << length;
  }
}

// Layers of an encoder know of the one length, those of a decoder of both.
TEST(TimeFit, OneOfTwoLengthsIsTold) {
  TimedPredictor timed;
  for (int i = 0; i < 24; ++i) {
    const std::int64_t source = timed.random_shape()[1];
    const std::int64_t target = timed.random_shape()[1];
    timed.observe({8, source, target}, 1e-6 * static_cast<double>(8 * source) * timed.noise(0.03));
  }
  for (const ShapeKey& shape : {ShapeKey{8, 100, 300}, ShapeKey{8, 300, 100}}) {
    const double truth = 1e-6 * static_cast<double>(8 * shape[1]);
    EXPECT_NEAR(timed.predict(shape).seconds / truth, 1, 0.1) << shape.to_string();
  }
}

TEST(TimeFit, ForgettingFollowsAMachineThatSlowsDown) {
  TimedPredictor timed({.forgetting = 0.97});
  for (int i = 0; i < 200; ++i) {
    const ShapeKey shape = timed.random_shape();
    timed.observe(shape, layer_seconds(shape));
  }
  for (int i = 0; i < 300; ++i) {
    const ShapeKey shape = timed.random_shape();
    timed.observe(shape, 2 * layer_seconds(shape));
  }
  EXPECT_NEAR(timed.predict({8, 200}).seconds / layer_seconds({8, 200}), 2.0, 0.1);
}

TEST(TimeFit, TimesThatWereNotMeasuredAreIgnored) {
  TimedPredictor timed;
  timed.observe({8, 100}, 0);
  EXPECT_EQ(timed.predict({8, 100}).seconds, 0);
  timed.observe({8, 100}, 0.01);
  timed.observe({8, 120}, 0);
  timed.observe({8, 140}, -5);
  EXPECT_NEAR(timed.predict({8, 100}).seconds, 0.01, 1e-4);
}

TEST(TimeFit, StaysSensibleFarOutside) {
  TimedPredictor timed;
  for (int i = 0; i < 20; ++i) {
    const ShapeKey shape = timed.random_shape();
    timed.observe(shape, layer_seconds(shape) * timed.noise(0.2));
  }
  for (const ShapeKey& far : {ShapeKey{1, 1}, ShapeKey{64, 4096}, ShapeKey{1, 4096}}) {
    const double seconds = timed.predict(far).seconds;
    EXPECT_GT(seconds, 0) << far.to_string();
    EXPECT_LT(seconds, 20 * layer_seconds(far)) << far.to_string();
  }
}

TEST(TimeFit, SettledTimesDoNotRaiseTheVersion) {
  TimedPredictor timed;
  for (int i = 0; i < 200; ++i) timed.observe({8, 100}, 0.01);
  const std::uint64_t version = timed.get().version();
  for (int i = 0; i < 200; ++i) timed.observe({8, 100}, 0.01);
  EXPECT_EQ(timed.get().version(), version);
}

TEST(TimeFit, IsDescribed) {
  TimedPredictor timed;
  for (int i = 0; i < 100; ++i) {
    const ShapeKey shape = timed.random_shape();
    timed.observe(shape, layer_seconds(shape));
  }
  const LearnedQuantity learned = timed.get().describe().back();
  EXPECT_EQ(learned.quantity, "seconds");
  EXPECT_EQ(learned.monomials, (std::vector<std::string>{"1", "batch*source", "batch*source^2"}));
  EXPECT_EQ(learned.samples, 100);
  ASSERT_EQ(learned.coefficients.size(), 1U);
  EXPECT_NEAR(learned.coefficients[0][1], 7.3e-6, 0.5e-6);
}

}  // namespace
}  // namespace pudica
