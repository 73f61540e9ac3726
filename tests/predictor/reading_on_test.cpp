// What is read of a segment's logs as they come is what is read of them all at once.
#include <algorithm>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "predictor/rounded_sizes.h"
#include "pudica/predictor.h"

namespace pudica {
namespace {

using testing::kMask;
using testing::kPlain;
using testing::Size;

constexpr std::uint64_t kSeed = 20261129;

class ReadingOn : public testing::RoundedSizes {
 protected:
  void SetUp() override { RecordProperty("seed", std::to_string(kSeed)); }

  std::int64_t draw(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }

  Size any_size() {
    const std::int64_t unit = draw(1, 64) * 16;
    const std::int64_t tile = std::int64_t{8} << draw(0, 4);
    const std::int64_t share = draw(1, 19);
    const std::int64_t parts = draw(0, 1) == 0 ? 20 : 997;
    switch (draw(0, 8)) {
      case 0:
        return kMask;
      case 1:
        return [=](const ShapeKey& s) { return unit * s[0] * (s.size() > 2 ? s[2] : 977); };
      case 2:
        return [=](const ShapeKey& s) { return unit * s[0] * s[1] + 4096; };
      case 3:
        return [=](const ShapeKey& s) { return unit * s[0] * testing::up(s[1], tile); };
      case 4:
        return
            [=](const ShapeKey& s) { return unit * s[0] * (testing::up(s[1], tile) / tile + 1); };
      case 5:
        return [=](const ShapeKey& s) { return unit * (share * s[0] * s[1] / parts + 1); };
      case 6:  // by values that no shape tells
        return [=, this](const ShapeKey& s) { return unit * (s[0] * s[1] / 2 + draw(1, 9)); };
      case 7:
        return [=](const ShapeKey& s) {
          return unit * s[0] * s[1] * (s.size() > 2 ? s[2] : 1) + 48 * share * s[0];
        };
      default:
        return [=](const ShapeKey& s) { return unit * std::min<std::int64_t>(s[0] * s[1], 900); };
    }
  }

  std::mt19937_64 random_{kSeed};
};

// As sample(), with something made between frees: whose order tells nothing else.
SegmentSample in_order(const std::vector<Size>& sizes, const ShapeKey& shape,
                       std::int64_t granules) {
  SegmentSample out = testing::sample(sizes, shape, granules);
  std::vector<std::int64_t> deltas;
  for (const std::int64_t delta : out.deltas) {
    deltas.push_back(delta);
    if (delta < 0) deltas.insert(deltas.end(), {512, -512});
  }
  out.deltas = std::move(deltas);
  return out;
}

// A restored state is read at once. Up to so many shapes as what follows no form is looked at again
// with each.
TEST_P(ReadingOn, IsReadingAnew) {
  constexpr int kRounds = 60;
  constexpr int kShapes = 14;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
    std::vector<Size> sizes{kPlain};
    for (std::int64_t k = draw(1, 6); k > 0; --k) sizes.push_back(any_size());
    const std::int64_t batches = draw(0, 1) == 0 ? 1 : 12;  // or it never varies
    const bool has_target = draw(0, 1) == 0;
    const auto shape = [&] {
      const std::int64_t batch = 3 + draw(1, batches);
      return has_target ? ShapeKey{batch, draw(9, 400), draw(9, 200)}
                        : ShapeKey{batch, draw(9, 400)};
    };
    ShapeKey repeated;
    for (int i = 0; i < kShapes; ++i) {
      const ShapeKey seen = i == kShapes / 2 ? repeated : shape();
      if (i == 1) repeated = seen;  // and again with other bytes, where they hang on values
      predictor_->observe(testing::kBackward, seen, in_order(sizes, seen, GetParam()));
      const auto anew = make_online_predictor({.granularity_bytes = GetParam()});
      ASSERT_TRUE(anew->restore(predictor_->serialize()).has_value());
      const ShapeKey asked = shape();
      const auto estimate = predictor_->predict(testing::kBackward, asked);
      const auto expected = anew->predict(testing::kBackward, asked);
      ASSERT_TRUE(estimate && expected);
      EXPECT_EQ(estimate->net_bytes, expected->net_bytes) << asked.to_string() << " of " << i + 1;
      EXPECT_EQ(estimate->peak_bytes, expected->peak_bytes) << asked.to_string() << " of " << i + 1;
      EXPECT_EQ(estimate->net_upper_bytes, expected->net_upper_bytes) << asked.to_string();
      EXPECT_EQ(estimate->peak_upper_bytes, expected->peak_upper_bytes) << asked.to_string();
      EXPECT_EQ(estimate->identified, expected->identified) << asked.to_string();
      EXPECT_EQ(estimate->basis, expected->basis) << asked.to_string();
    }
  }
}

// A full store gives up a shape for each that comes: what is left is read on as well.
TEST_P(ReadingOn, WhereTheOldestGo) {
  const std::vector<Size> sizes{
      kPlain, kMask, [this](const ShapeKey& s) { return 4096 * (s[0] * s[1] / 2 + draw(1, 9)); }};
  predictor_ =
      make_online_predictor({.granularity_bytes = GetParam(), .max_samples_per_segment = 20});
  const auto shape = [&] { return ShapeKey{8, draw(64, 512)}; };
  for (int i = 0; i < 60; ++i) {
    const ShapeKey seen = shape();
    predictor_->observe(testing::kBackward, seen, in_order(sizes, seen, GetParam()));
  }
  const ShapeKey asked = shape();
  const auto estimate = predictor_->predict(testing::kBackward, asked);
  const SegmentSample truth = in_order(sizes, asked, GetParam());
  EXPECT_NEAR(static_cast<double>(estimate->peak_bytes), static_cast<double>(truth.peak_bytes),
              16 * 4096);
  EXPECT_GE(estimate->peak_upper_bytes, truth.peak_bytes - 4096);
}

// What a layer holds goes before its own or behind it, by turns: frees have no order. So it is read
// on as well.
TEST_P(ReadingOn, WhereFreesHaveNoOrder) {
  const std::vector<Size> sizes{
      kPlain, kMask, [](const ShapeKey& s) { return 65536 * s[0] * s[1] + 1024 * s[1]; }};
  predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
  for (int i = 0; i < 16; ++i) {
    const ShapeKey seen{draw(2, 12), draw(64, 512)};
    SegmentSample sample = testing::sample(sizes, seen, GetParam());
    if (i % 2 == 1) std::swap(sample.deltas.back(), sample.deltas[sample.deltas.size() - 2]);
    predictor_->observe(testing::kBackward, seen, sample);
    if (i >= 9) expect_exact(sizes, {{draw(2, 12), draw(64, 512)}});
  }
}

// Segments change for good: a new version of a library, another path. Also where the batch never
// varies and each size has two forms.
TEST_P(ReadingOn, WhatChangesForGoodIsLearnedAgain) {
  const auto after = [](std::int64_t bytes) {
    return std::vector<Size>{kPlain, [bytes](const ShapeKey& s) { return bytes * s[0] * s[1]; }};
  };
  predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
  const auto take = [&](const std::vector<Size>& sizes, int shapes) {
    for (int i = 0; i < shapes; ++i) observe(sizes, {{8, draw(64, 512)}});
  };
  take(after(40960), 10);
  take(after(43008), 5);
  expect_exact(after(43008), {{8, 190}, {8, 401}});
}

INSTANTIATE_TEST_SUITE_P(Granularity, ReadingOn, ::testing::Values(1, 512));

}  // namespace
}  // namespace pudica
