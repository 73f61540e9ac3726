// Sizes that are a share of the tokens, in whole ones (masked, kept, sampled): read from few
// shapes, exact at others.
#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "predictor/rounded_sizes.h"
#include "pudica/predictor.h"

namespace pudica {
namespace {

using testing::kPlain;
using testing::Size;

constexpr std::uint64_t kSeed = 20261129;
using Rounding = std::function<std::int64_t(std::int64_t numerator, std::int64_t denominator)>;

std::int64_t down(std::int64_t n, std::int64_t d) { return n / d; }
std::int64_t up(std::int64_t n, std::int64_t d) { return (n + d - 1) / d; }
std::int64_t nearest(std::int64_t n, std::int64_t d) { return (2 * n + d) / (2 * d); }
std::int64_t to_even(std::int64_t n, std::int64_t d) {
  const bool is_tie = (2 * n + d) % (2 * d) == 0;
  const std::int64_t rounded = nearest(n, d);
  return is_tie && rounded % 2 != 0 ? rounded - 1 : rounded;
}
const std::vector<Rounding> kRoundings{down, up, nearest, to_even};

// A loss over a share of the tokens: their places, their hidden states, their logits.
std::vector<Size> masked(const Rounding& rounding, std::int64_t numerator,
                         std::int64_t denominator) {
  const auto count = [=](const ShapeKey& s) {
    return std::max<std::int64_t>(1, rounding(numerator * s[0] * s[1], denominator));
  };
  return {kPlain, [=](const ShapeKey& s) { return 8 * count(s); },
          [=](const ShapeKey& s) { return 3072 * count(s); },
          [=](const ShapeKey& s) { return 4 * 30522 * count(s); }};
}

// And something of the other tokens.
std::vector<Size> with_the_rest(std::vector<Size> sizes) {
  sizes.emplace_back(
      [count = sizes[1]](const ShapeKey& s) { return 256 * (s[0] * s[1] - count(s) / 8); });
  return sizes;
}

class SharePrediction : public testing::RoundedSizes {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(kSeed)); }

  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  ShapeKey shape() {
    const std::int64_t batch = draw(1, 16);
    return {batch, draw(16, 512)};
  }

  std::mt19937_64 random_{kSeed};
};

TEST_P(SharePrediction, OfTheTokensOfABatch) {
  for (const Rounding& rounding : kRoundings) {
    for (const auto& [numerator, denominator] :
         std::vector<std::pair<int, int>>{{3, 20}, {1, 4}, {3, 10}, {2, 3}, {17, 20}}) {
      SCOPED_TRACE(::testing::Message() << numerator << "/" << denominator);
      predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
      const std::vector<Size> sizes = with_the_rest(masked(rounding, numerator, denominator));
      observe(sizes, {{6, 113},
                      {5, 167},
                      {3, 509},
                      {7, 61},
                      {8, 347},
                      {2, 229},
                      {9, 401},
                      {4, 83},
                      {11, 137},
                      {1, 367},
                      {7, 251},
                      {13, 191},
                      {3, 283}});
      expect_exact(sizes, {{3, 211}, {8, 512}, {5, 96}, {7, 331}});
    }
  }
}

// What lies between two counts tells which way ties go.
TEST_P(SharePrediction, TiesGoAsTheyWere) {
  for (const Rounding& rounding : {Rounding(nearest), Rounding(to_even)}) {
    const std::vector<Size> sizes = masked(rounding, 3, 20);
    observe(sizes, {{1, 30},
                    {1, 50},
                    {2, 35},
                    {3, 30},
                    {5, 61},
                    {7, 83},
                    {4, 131},
                    {6, 97},
                    {9, 44},
                    {8, 301},
                    {7, 211},
                    {3, 177}});
    expect_exact(sizes, {{1, 70}, {5, 22}, {2, 125}, {3, 110}, {1, 290}});
    predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
  }
}

TEST_P(SharePrediction, WhereTheBatchNeverVaries) {
  for (const Rounding& rounding : kRoundings) {
    predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
    const std::vector<Size> sizes = masked(rounding, 3, 20);
    observe(sizes, {{8, 115},
                    {8, 199},
                    {8, 146},
                    {8, 63},
                    {8, 239},
                    {8, 88},
                    {8, 171},
                    {8, 127},
                    {8, 211},
                    {8, 94}});
    expect_exact(sizes, {{8, 101}, {8, 222}, {8, 160}});
  }
}

// What a batch that never varied leaves open is bounded: a share of the length, or of the tokens.
TEST_P(SharePrediction, AtAnotherBatchThanWasSeenItIsBounded) {
  for (const std::int64_t batch : {5, 8, 10, 15, 16, 25}) {
    for (const auto& [numerator, denominator] :
         std::vector<std::pair<int, int>>{{3, 20}, {1, 64}}) {
      SCOPED_TRACE(::testing::Message() << batch << ": " << numerator << "/" << denominator);
      predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
      const std::vector<Size> sizes = masked(down, numerator, denominator);
      for (const std::int64_t length : {115, 199, 146, 63, 239, 88, 171, 127, 211, 94}) {
        observe(sizes, {{batch, length}});
      }
      for (const ShapeKey& asked : {ShapeKey{2 * batch, 151}, ShapeKey{batch + 1, 230}}) {
        const auto estimate = predictor_->predict(testing::kBackward, asked);
        const SegmentSample truth = testing::sample(sizes, asked, GetParam());
        EXPECT_GE(estimate->peak_upper_bytes, truth.peak_bytes) << asked.to_string();
        EXPECT_FALSE(estimate->identified && estimate->peak_bytes != truth.peak_bytes);
      }
    }
  }
}

// Any share, in any rounding: exact nearly always, and where it is not the bounds hold.
TEST_P(SharePrediction, OfAnySize) {
  constexpr int kRounds = 80;
  constexpr int kAsked = 10;
  int exact = 0;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    const std::int64_t denominator = draw(2, 40);
    const auto& rounding = kRoundings[static_cast<std::size_t>(draw(0, 3))];
    const std::vector<Size> sizes = masked(rounding, draw(1, denominator - 1), denominator);
    predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
    for (int i = 0; i < 14; ++i) observe(sizes, {shape()});
    for (int i = 0; i < kAsked; ++i) {
      const ShapeKey asked = shape();
      const auto estimate = predictor_->predict(testing::kBackward, asked);
      const SegmentSample truth = testing::sample(sizes, asked, GetParam());
      exact += static_cast<int>(estimate->peak_bytes == truth.peak_bytes);
      ASSERT_GE(estimate->peak_upper_bytes, truth.peak_bytes) << asked.to_string();
      ASSERT_GE(estimate->net_upper_bytes, truth.net_bytes) << asked.to_string();
      if (estimate->identified) {
        ASSERT_EQ(estimate->peak_bytes, truth.peak_bytes) << asked.to_string();
      }
    }
  }
  EXPECT_GE(exact, kRounds * kAsked * 98 / 100);
}

// Many fractions give the sizes of few shapes, of which none is meant: both ends are planned for.
TEST_P(SharePrediction, FewShapesLeaveItOpen) {
  constexpr int kRounds = 400;
  int below = 0;
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round) {
    const std::int64_t denominator = draw(50, 1000);
    const auto& rounding = kRoundings[static_cast<std::size_t>(draw(0, 3))];
    const std::vector<Size> sizes = masked(rounding, draw(1, denominator - 1), denominator);
    predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
    for (int i = 0; i < 8; ++i) observe(sizes, {shape()});
    const ShapeKey asked = shape();
    const auto estimate = predictor_->predict(testing::kBackward, asked);
    const SegmentSample truth = testing::sample(sizes, asked, GetParam());
    constexpr std::int64_t kElement = 8 + 3072 + 4 * 30522;
    EXPECT_GE(estimate->peak_upper_bytes + kElement, truth.peak_bytes) << asked.to_string();
    below += static_cast<int>(estimate->peak_upper_bytes < truth.peak_bytes);
    wrong += static_cast<int>(estimate->identified && estimate->peak_bytes != truth.peak_bytes);
  }
  EXPECT_LE(below, kRounds / 50);
  EXPECT_LE(wrong, kRounds / 50);
}

// Each token by a throw of the dice: the counts are about a share, and no share of anything.
TEST_P(SharePrediction, ChanceIsNone) {
  const auto sizes = [&] {
    return std::vector<Size>{kPlain, [&](const ShapeKey& s) {
                               return 4096 * std::binomial_distribution<std::int64_t>(
                                                 s[0] * s[1], 0.15)(random_);
                             }};
  };
  for (int i = 0; i < 12; ++i) observe(sizes(), {{8, 100 + 17 * i}});
  const auto estimate = predictor_->predict(testing::kBackward, {8, 205});
  EXPECT_EQ(estimate->basis, PredictionBasis::kLeastSquares);
  EXPECT_FALSE(estimate->identified);
}

INSTANTIATE_TEST_SUITE_P(Granularity, SharePrediction, ::testing::Values(1));

}  // namespace
}  // namespace pudica
