#include "policy/mimose_scheduler.h"

#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<MimoseCandidate> candidates_of(std::initializer_list<std::pair<int, double>> groups) {
  std::vector<MimoseCandidate> candidates;
  for (const auto& [count, bytes] : groups) {
    for (int i = 0; i < count; ++i) candidates.push_back({candidates.size(), bytes});
  }
  return candidates;
}

// The example on which the published greedy was run: how many blocks each rule takes.
TEST(MimoseScheduler, TakesAsManyBlocksAsThePublishedProgramAndThePaper) {
  const auto blocks = candidates_of({{3, 600}, {4, 330}, {23, 165}, {3, 85}});
  EXPECT_EQ(schedule_mimose(MimoseRule::kCode, blocks, 800).size(), 4U);
  EXPECT_EQ(schedule_mimose(MimoseRule::kCode, blocks, 1500).size(), 8U);
  EXPECT_EQ(schedule_mimose(MimoseRule::kCode, blocks, 2500).size(), 14U);
  EXPECT_EQ(schedule_mimose(MimoseRule::kPaper, blocks, 800).size(), 2U);
  EXPECT_EQ(schedule_mimose(MimoseRule::kPaper, blocks, 1500).size(), 3U);
  EXPECT_EQ(schedule_mimose(MimoseRule::kPaper, blocks, 2500).size(), 6U);
}

TEST(MimoseScheduler, PaperTakesTheLargestThenTheNearestInSize) {
  const auto blocks = candidates_of({{3, 600}, {4, 330}, {23, 165}, {3, 85}});
  // 800: none exceeds it, so the largest (layer 0); 200 left: 330 is nearest (layer 3).
  EXPECT_THAT(schedule_mimose(MimoseRule::kPaper, blocks, 800), ElementsAre(0, 3));
}

TEST(MimoseScheduler, CodeTakesTheSmallestWhereNoneCoversTheRest) {
  const auto blocks = candidates_of({{3, 600}, {4, 330}, {23, 165}, {3, 85}});
  // 85 three times (30, 31, 32), then 545 are left: the earliest 600.
  EXPECT_THAT(schedule_mimose(MimoseRule::kCode, blocks, 800), ElementsAre(30, 31, 32, 0));
}

TEST(MimoseScheduler, BothTakeEqualBlocksFromTheFirst) {
  const auto blocks = candidates_of({{8, 100}});
  for (const MimoseRule rule : {MimoseRule::kPaper, MimoseRule::kCode}) {
    EXPECT_THAT(schedule_mimose(rule, blocks, 250), ElementsAre(0, 1, 2));
  }
}

TEST(MimoseScheduler, TheRulesDifferWhereALayerExactlyCoversTheNeed) {
  // The paper's candidates must exceed the need; the code's must reach it.
  const auto blocks = candidates_of({{1, 300}, {1, 200}});
  EXPECT_THAT(schedule_mimose(MimoseRule::kPaper, blocks, 200), ElementsAre(0));
  EXPECT_THAT(schedule_mimose(MimoseRule::kCode, blocks, 200), ElementsAre(1));
}

TEST(MimoseScheduler, BucketsTakeWhatIsWithinATenthOfTheirHead) {
  // 95 belongs to 100 and is earlier: taken for a need that only the bucket's head exceeds. 90 is
  // exactly 0.9: in the bucket for the code (and its earliest layer), not for the paper.
  const std::vector<MimoseCandidate> near{{0, 95}, {1, 100}};
  EXPECT_THAT(schedule_mimose(MimoseRule::kPaper, near, 94), ElementsAre(0));
  const std::vector<MimoseCandidate> edge{{0, 90}, {1, 100}};
  EXPECT_THAT(schedule_mimose(MimoseRule::kPaper, edge, 95), ElementsAre(1));
  const std::vector<MimoseCandidate> code_edge{{0, 100}, {1, 90}};
  EXPECT_THAT(schedule_mimose(MimoseRule::kCode, code_edge, 200), ElementsAre(0, 1));
}

TEST(MimoseScheduler, TakesNothingForNoNeedAndEverythingForTooMuch) {
  const auto blocks = candidates_of({{2, 10}, {3, 5}});
  for (const MimoseRule rule : {MimoseRule::kPaper, MimoseRule::kCode}) {
    EXPECT_THAT(schedule_mimose(rule, blocks, 0), IsEmpty());
    EXPECT_THAT(schedule_mimose(rule, blocks, -7), IsEmpty());
    EXPECT_EQ(schedule_mimose(rule, blocks, 1e18).size(), 5U);
    EXPECT_THAT(schedule_mimose(rule, {}, 5), IsEmpty());
  }
}

// Goal: on any sizes, zero and negative estimates included, each layer is taken at most once, and
// the rule stops as soon as the need is covered, never before unless all are taken.
TEST(MimoseScheduler, StopsExactlyWhenTheNeedIsCovered) {
  constexpr unsigned kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  std::uniform_int_distribution<int> count(0, 20);
  std::uniform_int_distribution<int> bytes(-3, 40);
  std::uniform_int_distribution<int> needed(-10, 300);
  for (int round = 0; round < 4000; ++round) {
    std::vector<MimoseCandidate> blocks(static_cast<std::size_t>(count(random)));
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = {i, 1.0 * bytes(random)};
    const double need = needed(random);
    for (const MimoseRule rule : {MimoseRule::kPaper, MimoseRule::kCode}) {
      const auto chosen = schedule_mimose(rule, blocks, need);
      EXPECT_EQ(std::set(chosen.begin(), chosen.end()).size(), chosen.size());
      double covered = 0;
      for (const std::size_t layer : chosen) {
        EXPECT_LT(covered, need);
        covered += blocks.at(layer).saved_bytes;
      }
      if (chosen.size() < blocks.size()) {
        EXPECT_GE(covered, need);
      }
    }
  }
}

}  // namespace
}  // namespace pudica
