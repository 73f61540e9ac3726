// What is read of a segment's logs as they come is what is read of them all at once.
#include <algorithm>
#include <memory>
#include <random>
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
    switch (draw(0, 7)) {
      case 0:
        return kMask;
      case 1:
        return [=](const ShapeKey&) { return unit * 977; };
      case 2:
        return [=](const ShapeKey& s) { return unit * s[0] * s[1] + 4096; };
      case 3:
        return [=](const ShapeKey& s) { return unit * s[0] * testing::up(s[1], tile); };
      case 4:
        return
            [=](const ShapeKey& s) { return unit * s[0] * (testing::up(s[1], tile) / tile + 1); };
      case 5:
        return [=](const ShapeKey& s) { return unit * (share * s[0] * s[1] / 20 + 1); };
      case 6:  // by values that no shape tells
        return [=, this](const ShapeKey& s) { return unit * (s[0] * s[1] / 2 + draw(1, 9)); };
      default:
        return [=](const ShapeKey& s) { return unit * std::min<std::int64_t>(s[0] * s[1], 900); };
    }
  }

  std::mt19937_64 random_{kSeed};
};

// A restored state is read at once. Up to so many shapes as what follows no form is looked at again
// with each.
TEST_P(ReadingOn, IsReadingAnew) {
  constexpr int kRounds = 40;
  constexpr int kShapes = 14;
  for (int round = 0; round < kRounds; ++round) {
    SCOPED_TRACE(::testing::Message() << "seed " << kSeed << " round " << round);
    predictor_ = make_online_predictor({.granularity_bytes = GetParam()});
    std::vector<Size> sizes{kPlain};
    for (std::int64_t k = draw(1, 6); k > 0; --k) sizes.push_back(any_size());
    const std::int64_t batches = draw(0, 1) == 0 ? 1 : 12;  // or it never varies
    const auto shape = [&] { return ShapeKey{3 + draw(1, batches), draw(9, 400)}; };
    for (int i = 0; i < kShapes; ++i) {
      observe(sizes, {shape()});
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

INSTANTIATE_TEST_SUITE_P(Granularity, ReadingOn, ::testing::Values(1, 512));

}  // namespace
}  // namespace pudica
