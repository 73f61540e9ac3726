#include "daemon/budget_shares.h"

#include <numeric>
#include <vector>

#include <gmock/gmock.h>

namespace pudica::daemon {
namespace {

using testing::ElementsAre;
using Numbers = std::vector<std::int64_t>;

TEST(FillFairly, GivesEveryoneItsCapWhereThatFits) {
  EXPECT_THAT(fill_fairly(Numbers{3, 0, 5}, 20), ElementsAre(3, 0, 5));
}

TEST(FillFairly, NobodyHasLessThanAnotherButForItsCap) {
  EXPECT_THAT(fill_fairly(Numbers{100, 2, 100}, 12), ElementsAre(5, 2, 5));
}

TEST(FillFairly, RemainderIsGivenToo) {
  const Numbers given = fill_fairly(Numbers{10, 10, 10}, 11);
  EXPECT_EQ(std::accumulate(given.begin(), given.end(), std::int64_t{0}), 11);
  EXPECT_THAT(given, ElementsAre(4, 4, 3));
}

TEST(FillFairly, NegativeCapsAndAmountsGiveNothing) {
  EXPECT_THAT(fill_fairly(Numbers{-5, 4}, 3), ElementsAre(0, 3));
  EXPECT_THAT(fill_fairly(Numbers{5, 4}, -3), ElementsAre(0, 0));
  EXPECT_TRUE(fill_fairly(Numbers{}, 3).empty());
}

TEST(DivideByClaims, WhatFitsIsGivenAsAsked) {
  EXPECT_THAT(divide_by_claims(std::vector<Claim>{{30, 10}, {50, 10}}, 100), ElementsAre(30, 50));
}

TEST(DivideByClaims, ScalesByOneFactorButNotBelowAFloor) {
  EXPECT_THAT(divide_by_claims(std::vector<Claim>{{80, 0}, {40, 0}}, 60), ElementsAre(40, 20));
  // Half of 40 is below 30: the others make up for it.
  EXPECT_THAT(divide_by_claims(std::vector<Claim>{{80, 0}, {40, 30}}, 60), ElementsAre(30, 30));
  EXPECT_THAT(divide_by_claims(std::vector<Claim>{{90, 0}, {10, 0}, {20, 20}}, 60),
              ElementsAre(36, 4, 20));
}

TEST(DivideByClaims, PinnedClaimsAreNotScaledWhileTheOthersFit) {
  EXPECT_THAT(divide_by_claims(std::vector<Claim>{{40, 10, true}, {80, 10}}, 60),
              ElementsAre(40, 20));
  EXPECT_THAT(divide_by_claims(std::vector<Claim>{{60, 10, true}, {60, 10}}, 60),
              ElementsAre(30, 30));
}

TEST(DivideByClaims, LargeNumbersDoNotOverflow) {
  const std::int64_t large = std::int64_t{1} << 50;
  EXPECT_THAT(divide_by_claims(std::vector<Claim>{{large, 0}, {large, 0}}, large),
              ElementsAre(large / 2, large / 2));
}

TEST(DivideByNeeds, NeedsWithinSharesComeBeforeThoseAbove) {
  // The second could use 90, but the first one's right comes first.
  EXPECT_THAT(divide_by_needs(std::vector<Demand>{{10, 50, 50}, {10, 50, 90}}, 100),
              ElementsAre(50, 50));
  EXPECT_THAT(divide_by_needs(std::vector<Demand>{{10, 50, 20}, {10, 50, 70}}, 100),
              ElementsAre(30, 70));
  EXPECT_THAT(divide_by_needs(std::vector<Demand>{{10, 50, 20}, {10, 50, 90}}, 100),
              ElementsAre(20, 80));
}

TEST(DivideByNeeds, WhatIsLentIsDividedFairly) {
  // 30 unused: 5 satisfy the second, the other two part the rest.
  EXPECT_THAT(
      divide_by_needs(std::vector<Demand>{{0, 50, 20}, {0, 50, 55}, {0, 50, 90}, {0, 50, 99}}, 200),
      ElementsAre(20, 55, 63, 62));
}

TEST(DivideByNeeds, WhatNobodyNeedsStaysWithItsOwnersAndFloorsComeFirst) {
  EXPECT_THAT(divide_by_needs(std::vector<Demand>{{10, 40, 20}, {10, 40, 30}}, 100),
              ElementsAre(40, 40));
  EXPECT_THAT(divide_by_needs(std::vector<Demand>{{10, 60, 60}, {30, 40, 40}}, 45),
              ElementsAre(12, 33));
}

}  // namespace
}  // namespace pudica::daemon
