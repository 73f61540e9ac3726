#include "controller/margin.h"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace pudica {
namespace {

TEST(Margin, StartsAtThePriorAndGoesToZeroWhenPredictionsAreExact) {
  Margin margin(0.01);
  EXPECT_DOUBLE_EQ(margin.fraction(), Margin::kPriorFraction);
  for (int i = 0; i < 5; ++i) margin.add(0);
  EXPECT_LT(margin.fraction(), 1e-4);
  for (int i = 0; i < 200; ++i) margin.add(0);
  EXPECT_EQ(margin.fraction(), 0);
  EXPECT_EQ(margin.held_back_bytes(1 << 30), 0);
}

TEST(Margin, IsNeverNegative) {
  Margin margin(0.01);
  for (int i = 0; i < 300; ++i) margin.add(-0.02);
  EXPECT_EQ(margin.fraction(), 0);
}

TEST(Margin, WithFewErrorsTheLargestStandsIn) {
  Margin margin(0.01);
  margin.add(0.003);
  margin.add(0.001);
  EXPECT_DOUBLE_EQ(margin.fraction(), 0.003);
}

// The share of steps whose error exceeds the margin held at that time stays near the rate.
TEST(Margin, HoldsTheRevocationRateUnderNoise) {
  constexpr std::uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  std::uniform_real_distribution<double> noise(-0.005, 0.005);
  for (const double rate : {0.01, 0.05, 0.2}) {
    Margin margin(rate);
    int exceeded = 0;
    constexpr int kSteps = 20000;
    for (int i = 0; i < kSteps; ++i) {
      const double error = noise(random);
      if (error > margin.fraction()) ++exceeded;
      margin.add(error);
    }
    EXPECT_LT(static_cast<double>(exceeded) / kSteps, rate * 1.3) << rate;
    EXPECT_LT(margin.fraction(), 0.005);
  }
}

TEST(Margin, KeepsThePeakWithinTheBudget) {
  Margin margin(0.5);
  margin.add(0.02);
  const std::int64_t budget = 1000000;
  const std::int64_t planned = budget - margin.held_back_bytes(budget);
  EXPECT_LE(static_cast<double>(planned) * 1.02, budget);
}

TEST(Margin, IsBoundedAndForgetsOnReset) {
  Margin margin(0.1);
  for (int i = 0; i < 5000; ++i) margin.add(0.01);
  EXPECT_EQ(margin.errors().size(), Margin::kWindow);
  margin.add(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(margin.errors().size(), Margin::kWindow);
  EXPECT_DOUBLE_EQ(margin.fraction(), 0.01);
  margin.reset();
  EXPECT_TRUE(margin.errors().empty());
  EXPECT_DOUBLE_EQ(margin.fraction(), Margin::kPriorFraction);
}

}  // namespace
}  // namespace pudica
