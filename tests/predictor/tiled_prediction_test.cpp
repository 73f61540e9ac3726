// Sizes that kernels round up to whole tiles, or that grow no further: read from few shapes, exact
// at others.
#include <algorithm>
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "pudica/predictor.h"

namespace pudica {
namespace {

constexpr std::uint64_t kSeed = 20261127;
const SegmentKey kBackward{SegmentKind::kBackward, 0, Mode::keep(), 0};

using Size = std::function<std::int64_t(const ShapeKey&)>;

std::int64_t up(std::int64_t value, std::int64_t tile) { return (value + tile - 1) / tile * tile; }

// As an attention's backward in bfloat16 and the partial sums behind a bias have them.
const Size kPlain = [](const ShapeKey& s) { return s[0] * s[1] * 1536; };
const Size kAccumulator = [](const ShapeKey& s) { return s[0] * up(s[1], 128) * 3072; };
const Size kMask = [](const ShapeKey& s) { return s[0] * s[1] * up(s[1], 8) * 24; };
const Size kPartialSums = [](const ShapeKey& s) { return up(s[0] * s[1], 64) * 12288; };
const Size kFewBlocks = [](const ShapeKey& s) {
  return std::min<std::int64_t>(up(s[0] * s[1], 64), 2816) * 12288;
};
const Size kWindow = [](const ShapeKey& s) {
  return s[0] * std::min<std::int64_t>(s[1], 128) * 96;
};

// Each size allocated beside the last, all freed at the end but the first.
SegmentSample sample(const std::vector<Size>& sizes, const ShapeKey& shape, std::int64_t granules) {
  SegmentSample out;
  for (const Size& size : sizes) out.deltas.push_back(up(size(shape), granules));
  for (std::size_t i = sizes.size(); i > 1; --i) out.deltas.push_back(-out.deltas[i - 1]);
  for (const std::int64_t delta : out.deltas) {
    out.net_bytes += delta;
    out.peak_bytes = std::max(out.peak_bytes, out.net_bytes);
  }
  return out;
}

class TiledPrediction : public ::testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(kSeed)); }

  void observe(const std::vector<Size>& sizes, std::initializer_list<ShapeKey> shapes) {
    for (const ShapeKey& shape : shapes) {
      predictor_->observe(kBackward, shape, sample(sizes, shape, GetParam()));
    }
  }
  void expect_exact(const std::vector<Size>& sizes, std::initializer_list<ShapeKey> shapes) {
    for (const ShapeKey& shape : shapes) {
      const auto estimate = predictor_->predict(kBackward, shape);
      const SegmentSample truth = sample(sizes, shape, GetParam());
      EXPECT_EQ(estimate->peak_bytes, truth.peak_bytes) << shape.to_string();
      EXPECT_EQ(estimate->net_bytes, truth.net_bytes) << shape.to_string();
      EXPECT_EQ(estimate->basis, PredictionBasis::kExact) << shape.to_string();
      EXPECT_TRUE(estimate->identified) << shape.to_string();
    }
  }

  std::unique_ptr<Predictor> predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
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

// Attention pads a mask whose length is no whole vector, and a large sum is taken in two stages:
// what is more than in other logs stands in those of the shapes alike.
TEST_P(TiledPrediction, EachShapeIsReadFromTheLogsOfItsLike) {
  const std::vector<Size> plain{kPlain, kPlain};
  const std::vector<Size> padded{kPlain, kMask, kPlain};
  for (const int least : {0, 3000}) {
    SCOPED_TRACE(::testing::Message() << "rows " << least);
    predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
    const auto of = [&](const ShapeKey& shape) {
      const bool more = least == 0 ? shape[1] % 8 != 0 : shape[0] * shape[1] >= least;
      return sample(more ? padded : plain, shape, GetParam());
    };
    for (const ShapeKey& shape :
         {ShapeKey{16, 121}, ShapeKey{12, 264}, ShapeKey{12, 133}, ShapeKey{16, 296},
          ShapeKey{12, 305}, ShapeKey{16, 410}, ShapeKey{16, 88}}) {
      predictor_->observe(kBackward, shape, of(shape));
    }
    for (const ShapeKey& asked : {ShapeKey{16, 77}, ShapeKey{16, 80}, ShapeKey{12, 400},
                                  ShapeKey{16, 423}, ShapeKey{8, 96}, ShapeKey{16, 504}}) {
      const auto estimate = predictor_->predict(kBackward, asked);
      EXPECT_EQ(estimate->peak_bytes, of(asked).peak_bytes) << asked.to_string();
      EXPECT_TRUE(estimate->identified) << asked.to_string();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Granularity, TiledPrediction, ::testing::Values(1, 512));

}  // namespace
}  // namespace pudica
