// Sizes that kernels round up to whole tiles, or that grow no further: read from few shapes, exact
// at others.
#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "predictor/rounded_sizes.h"
#include "pudica/predictor.h"

namespace pudica {
namespace {

using testing::kBackward;
using testing::kMask;
using testing::kPlain;
using testing::sample;
using testing::Size;
using testing::up;

constexpr std::uint64_t kSeed = 20261127;

// As an attention's backward in bfloat16 and the partial sums behind a bias have them.
const Size kAccumulator = [](const ShapeKey& s) { return s[0] * up(s[1], 128) * 3072; };
const Size kPartialSums = [](const ShapeKey& s) { return up(s[0] * s[1], 64) * 12288; };
const Size kFewBlocks = [](const ShapeKey& s) {
  return std::min<std::int64_t>(up(s[0] * s[1], 64), 2816) * 12288;
};
const Size kWindow = [](const ShapeKey& s) {
  return s[0] * std::min<std::int64_t>(s[1], 128) * 96;
};

class TiledPrediction : public testing::RoundedSizes {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(kSeed)); }
};

TEST_P(TiledPrediction, LengthsRowsAndMasksInWholeTiles) {
  const std::vector<Size> sizes{kPlain, kAccumulator, kMask, kPartialSums};
  observe(sizes, {{16, 132}, {16, 185}, {12, 229}, {16, 301}, {16, 410}});
  expect_exact(sizes, {{16, 70}, {16, 257}, {12, 384}, {8, 499}, {4, 1021}});
}

TEST_P(TiledPrediction, WhatGrowsNoFurtherIsReadFromBothSides) {
  const std::vector<Size> sizes{kPlain, kFewBlocks, kWindow};
  observe(sizes, {{16, 70}, {16, 83}, {16, 118}, {16, 150}, {16, 229}, {16, 301}});
  expect_exact(sizes, {{16, 101}, {16, 128}, {16, 175}, {16, 177}, {16, 512}});
}

// Two shapes are fitted by tiles and by sums of two terms: what comes of either is within bounds.
TEST_P(TiledPrediction, TwoShapesLeaveADoubtThatIsBounded) {
  for (const Size& size : {kAccumulator, kMask, kPartialSums}) {
    predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
    const std::vector<Size> sizes{kPlain, size, size};
    observe(sizes, {{16, 133}, {16, 331}});
    for (const ShapeKey& asked : {ShapeKey{16, 70}, ShapeKey{16, 200}, ShapeKey{16, 500}}) {
      const auto estimate = predictor_->predict(kBackward, asked);
      EXPECT_FALSE(estimate->identified);
      EXPECT_GE(estimate->peak_upper_bytes, sample(sizes, asked, GetParam()).peak_bytes);
    }
  }
}

// Any tile, any part of any product, beside sizes that are not tiled: once a dozen shapes were
// seen, nearly every other is exact, and what is not is within bounds.
TEST_P(TiledPrediction, OfAnyTile) {
  std::mt19937_64 random(kSeed);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  int exact = 0;
  constexpr int kRounds = 60;
  constexpr int kAsked = 10;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    std::vector<Size> sizes{kPlain};
    for (std::int64_t k = draw(1, 5); k > 0; --k) {
      const std::int64_t tile = std::int64_t{8} << draw(0, 5);
      const std::int64_t coefficient = 2 * draw(16, 4096);
      const std::int64_t kind = draw(0, 3);
      sizes.emplace_back([=](const ShapeKey& s) {
        if (kind == 0) return coefficient * s[0] * up(s[1], tile);
        if (kind == 1) return coefficient * s[0] * s[1] * up(s[1], tile);
        if (kind == 2) return coefficient * up(s[0] * s[1], tile);
        return coefficient * up(s[1], tile);
      });
    }
    predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
    const auto shape = [&] { return ShapeKey{draw(2, 32), draw(16, 512)}; };
    for (int i = 0; i < 12; ++i) observe(sizes, {shape()});
    for (int i = 0; i < kAsked; ++i) {
      const ShapeKey asked = shape();
      const auto estimate = predictor_->predict(kBackward, asked);
      const SegmentSample truth = sample(sizes, asked, GetParam());
      exact += static_cast<int>(estimate->peak_bytes == truth.peak_bytes);
      ASSERT_GE(estimate->peak_upper_bytes, truth.peak_bytes) << asked.to_string();
      ASSERT_GE(estimate->net_upper_bytes, truth.net_bytes) << asked.to_string();
    }
  }
  EXPECT_GE(exact, kRounds * kAsked * 95 / 100);
}

// A window an element of the batch, or blocks on a device: as long as one batch was seen either may
// be what a size stays at.
TEST_P(TiledPrediction, WhatItStaysAtMayGrowWithTheBatch) {
  const std::vector<Size> sizes{kPlain, kWindow};
  observe(sizes, {{16, 70}, {16, 83}, {16, 118}, {16, 150}, {16, 229}});
  expect_exact(sizes, {{16, 101}, {16, 301}});
  const ShapeKey larger{32, 301};
  const auto estimate = predictor_->predict(kBackward, larger);
  EXPECT_FALSE(estimate->identified);
  EXPECT_GE(estimate->peak_upper_bytes, sample(sizes, larger, GetParam()).peak_bytes);
  observe(sizes, {{8, 150}, {8, 90}});
  expect_exact(sizes, {larger, {8, 300}, {24, 99}});
}

// Lengths of two tiles alone: no third one comes, nor is it asked for.
TEST_P(TiledPrediction, ASizeThatWasSeenIsCertainWhereAllAgree) {
  const std::vector<Size> sizes{kPlain, kAccumulator};
  observe(sizes, {{16, 382}, {16, 470}, {16, 301}, {16, 259}, {16, 387}});
  expect_exact(sizes, {{16, 410}, {16, 370}, {16, 460}});
  const auto longer = predictor_->predict(kBackward, ShapeKey{16, 600});
  EXPECT_FALSE(longer->identified);
}

TEST_P(TiledPrediction, OfACoefficientTheBatchIsNoPart) {
  const std::vector<Size> sizes{kAccumulator};
  observe(sizes, {{16, 133}, {16, 331}, {16, 500}});
  for (const ShapeKey& asked : {ShapeKey{8, 301}, ShapeKey{24, 301}}) {
    const auto estimate = predictor_->predict(kBackward, asked);
    EXPECT_EQ(estimate->peak_bytes, sample(sizes, asked, GetParam()).peak_bytes);
    EXPECT_FALSE(estimate->identified) << "of one batch";
  }
}

// What grows no further is known from where it does not, though one shape with less says little of
// how it came there.
TEST_P(TiledPrediction, AtRestIsKnownBeforeWhatIsBelow) {
  const std::vector<Size> sizes{kPlain, kFewBlocks};
  observe(sizes, {{16, 382}, {16, 470}, {16, 101}, {16, 356}, {16, 410}});
  expect_exact(sizes, {{16, 360}, {16, 430}, {16, 1020}});
  for (const std::int64_t length : {70, 150}) {
    const ShapeKey asked{16, length};
    const auto estimate = predictor_->predict(kBackward, asked);
    EXPECT_FALSE(estimate->identified) << length;
    EXPECT_GE(estimate->peak_upper_bytes, sample(sizes, asked, GetParam()).peak_bytes) << length;
  }
}

// A size of no form is interpolated: where that comes to nothing it is not known.
TEST_P(TiledPrediction, NothingIsNoSizeOfWhatAlwaysWas) {
  const std::vector<Size> sizes{kPlain, [](const ShapeKey& s) {
                                  return s[0] * s[1] * std::min<std::int64_t>(s[1], 256) * 32;
                                }};
  observe(sizes, {{10, 189}, {1, 164}, {14, 540}, {9, 457}});
  const ShapeKey asked{16, 82};
  const auto estimate = predictor_->predict(kBackward, asked);
  EXPECT_FALSE(estimate->identified);
  EXPECT_GE(estimate->peak_upper_bytes, sample(sizes, asked, GetParam()).peak_bytes);
}

// A tile that is no power of two stays at its last size for a while, as what grows no further does.
TEST_P(TiledPrediction, TwoShapesBelowDoNotShowThatGrowthEnds) {
  const std::vector<Size> sizes{[](const ShapeKey& s) { return s[0] * up(s[1], 80) * 3072; }};
  observe(sizes, {{16, 107}, {16, 250}, {16, 446}, {16, 478}});
  const ShapeKey asked{16, 600};
  const auto estimate = predictor_->predict(kBackward, asked);
  EXPECT_FALSE(estimate->identified);
  EXPECT_GE(estimate->peak_upper_bytes, sample(sizes, asked, GetParam()).peak_bytes);
}

INSTANTIATE_TEST_SUITE_P(Granularity, TiledPrediction, ::testing::Values(1, 512));

}  // namespace
}  // namespace pudica
