#include "plan_cache/region.h"

#include <gtest/gtest.h>

namespace pudica {
namespace {

TEST(Region, FindsTheLongestKeyThatFits) {
  int calls = 0;
  const auto fits = [&calls](const ShapeKey& key) -> std::optional<bool> {
    ++calls;
    return key[0] * key[1] <= 1000;
  };
  const auto region = region_of({3, 100}, fits);
  ASSERT_EQ(region.size(), 1u);
  EXPECT_EQ(region[0], (ShapeKey{3, 333}));
  EXPECT_LE(calls, 48);
}

TEST(Region, IsAStaircaseForTwoLengths) {
  const auto fits = [](const ShapeKey& key) -> std::optional<bool> {
    return key[1] + 2 * key[2] <= 100;
  };
  const auto region = region_of({2, 20, 20}, fits);
  ASSERT_EQ(region.size(), 2u);
  EXPECT_EQ(region[0], (ShapeKey{2, 60, 20}));
  EXPECT_EQ(region[1], (ShapeKey{2, 20, 40}));
}

TEST(Region, IsEmptyWhereThePlanDoesNotFitOrNothingIsKnown) {
  EXPECT_TRUE(region_of({2, 20}, [](const ShapeKey&) { return std::optional(false); }).empty());
  EXPECT_TRUE(region_of({2, 20}, [](const ShapeKey&) { return std::optional<bool>(); }).empty());
  EXPECT_TRUE(region_of({}, [](const ShapeKey&) { return std::optional(true); }).empty());
}

TEST(Region, EndsWhereEverythingFits) {
  const auto region = region_of({2, 20}, [](const ShapeKey&) { return std::optional(true); });
  ASSERT_EQ(region.size(), 1u);
  EXPECT_GE(region[0][1], 1 << 20);
}

}  // namespace
}  // namespace pudica
