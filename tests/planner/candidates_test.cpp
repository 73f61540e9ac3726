#include "planner/candidates.h"

#include <gtest/gtest.h>

#include "planner/saturating.h"

namespace pudica::planner {
namespace {

TEST(Candidates, DropModesThatAnotherBeatsInBytesPeakAndTime) {
  Chain chain;
  chain.layers = {{{50, 60, 20}, {50, 61, 20}, {40, 60, 20}, {10, 90, 30}, {41, 70, 25}}};
  Candidates candidates;
  ASSERT_TRUE(candidates.collect(chain).has_value());
  ASSERT_EQ(candidates.of(0).size(), 2U);
  EXPECT_EQ(candidates.of(0)[0].source, 2);
  EXPECT_EQ(candidates.of(0)[1].source, 3);
  EXPECT_EQ(candidates.of(0)[0].time_ns, 0);
  EXPECT_EQ(candidates.of(0)[1].time_ns, 10);
  EXPECT_EQ(candidates.fastest_ns(), 20);
  EXPECT_EQ(candidates.slowest_ns(), 10);
}

TEST(Candidates, KeepModesThatAreBestInAnyOneOfThree) {
  Chain chain;
  chain.layers = {{{9, 9, 1}, {1, 9, 9}, {9, 1, 9}}};
  Candidates candidates;
  ASSERT_TRUE(candidates.collect(chain).has_value());
  EXPECT_EQ(candidates.of(0).size(), 3U);
}

TEST(Candidates, NameAModeThatNeedsNoMoreForAnyMode) {
  Chain chain;
  chain.layers = {{{50, 60, 20}, {40, 60, 20}, {10, 90, 30}}};
  Candidates candidates;
  ASSERT_TRUE(candidates.collect(chain).has_value());
  EXPECT_EQ(candidates.candidate_for(0, chain.layers[0][0]), 0);  // beaten by mode 1
  EXPECT_EQ(candidates.candidate_for(0, chain.layers[0][2]), 1);
  EXPECT_THROW((void)candidates.candidate_for(0, ChainMode{1, 1, 1}), BugError);
}

TEST(Candidates, FloorsFollowTheRecursionFromTheTail) {
  Chain chain;
  chain.layers = {{{30, 35, 0}, {5, 70, 1}}, {{20, 25, 0}, {2, 40, 1}}};
  chain.tail_bytes = 10;
  Candidates candidates;
  ASSERT_TRUE(candidates.collect(chain).has_value());
  EXPECT_EQ(candidates.floors()[2], 10);
  EXPECT_EQ(candidates.floors()[1], 30);  // min(max(25, 30), max(40, 12))
  EXPECT_EQ(candidates.floors()[0], 60);  // min(max(35, 60), max(70, 35))
}

TEST(Saturating, StopsAtTheEnds) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ(saturating_add(kMost, 1), kMost);
  EXPECT_EQ(saturating_add(kLeast, -1), kLeast);
  EXPECT_EQ(saturating_subtract(0, kLeast), kMost);
  EXPECT_EQ(saturating_subtract(kLeast, 1), kLeast);
  EXPECT_EQ(saturating_subtract(3, 5), -2);
}

}  // namespace
}  // namespace pudica::planner
