// Which calls of a step are layers of one size.
#include "torch/size_groups.h"

#include <random>
#include <set>

#include <gtest/gtest.h>

namespace pudica::hooks {
namespace {

using Step = std::vector<std::int64_t>;

std::vector<std::size_t> groups_of(SizeGroups& groups, std::uint64_t step, const Step& lengths) {
  std::vector<std::size_t> out;
  for (const std::int64_t length : lengths) out.push_back(groups.group_of(step, {8, length, 32}));
  return out;
}

TEST(SizeGroups, LayersOfOneSizeAreOne) {
  SizeGroups groups;
  for (std::uint64_t step = 1; step < 9; ++step) {
    const auto length = static_cast<std::int64_t>(16 * step);
    EXPECT_EQ(groups_of(groups, step, Step(6, length)), std::vector<std::size_t>(6, 0));
  }
}

TEST(SizeGroups, LevelsOfAPyramidAreTheSameAtEveryLength) {
  SizeGroups groups;
  for (std::uint64_t step = 1; step < 9; ++step) {
    const auto length = static_cast<std::int64_t>(16 * step);
    const Step lengths{length, length, length / 2, length / 2, length / 4, length / 2, length};
    EXPECT_EQ(groups_of(groups, step, lengths), (std::vector<std::size_t>{0, 0, 1, 1, 2, 1, 0}));
  }
}

// Two towers of two layers each: a batch in which they are as long changes nothing.
TEST(SizeGroups, SizesThatHappenToBeEqualStayApart) {
  SizeGroups groups;
  const std::vector<std::size_t> apart{0, 0, 1, 1};
  EXPECT_EQ(groups_of(groups, 1, {32, 32, 32, 32}), (std::vector<std::size_t>{0, 0, 0, 0}));
  EXPECT_EQ(groups_of(groups, 2, {32, 32, 64, 64}), apart);
  EXPECT_EQ(groups_of(groups, 3, {48, 48, 48, 48}), apart);
  EXPECT_EQ(groups_of(groups, 4, {64, 64, 16, 16}), apart);
}

// A level that was joined with another by chance is found out in a later step.
TEST(SizeGroups, AGroupIsSplitWhenItsCallsDiffer) {
  SizeGroups groups;
  EXPECT_EQ(groups_of(groups, 1, {32, 16, 32}), (std::vector<std::size_t>{0, 1, 0}));
  EXPECT_EQ(groups_of(groups, 2, {32, 16, 24}), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(groups_of(groups, 3, {32, 16, 32}), (std::vector<std::size_t>{0, 1, 2}));
}

// Experts whose inputs follow the data: in the end all are of one class, as many as there are.
TEST(SizeGroups, SizesThatFollowTheDataAreOneGroupInTheEnd) {
  std::mt19937_64 random(5);
  SizeGroups groups;
  std::set<std::size_t> last;
  for (std::uint64_t step = 1; step < 40; ++step) {
    Step lengths;
    for (int i = 0; i < 16; ++i) lengths.push_back(1 + static_cast<std::int64_t>(random() % 500));
    const auto found = groups_of(groups, step, lengths);
    last = std::set<std::size_t>(found.begin(), found.end());
    EXPECT_LT(*last.rbegin(), SizeGroups::kMostGroups);
  }
  EXPECT_EQ(last, std::set<std::size_t>{0});
}

}  // namespace
}  // namespace pudica::hooks
