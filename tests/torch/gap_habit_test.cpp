// How much of a budget is left free for an allocator's holes.
#include "torch/gap_habit.h"

#include <gtest/gtest.h>

namespace pudica::testing {
namespace {

constexpr std::int64_t kCap = 25600;  // 256 parts of 100

TEST(GapHabit, LeavesFreeTheMostThatWasSeenNearTheCap) {
  hooks::GapHabit habit;
  EXPECT_EQ(habit.bytes(), 0);
  habit.note(1000, 24000, kCap);
  EXPECT_EQ(habit.bytes(), 1000);
  habit.note(1450, 24000, kCap);
  habit.note(200, 25000, kCap);
  EXPECT_EQ(habit.bytes(), 1500) << "in coarse parts, upwards";
}

TEST(GapHabit, AStepFarFromTheCapTellsNothing) {
  hooks::GapHabit habit;
  habit.note(3000, 10000, kCap);
  EXPECT_EQ(habit.bytes(), 0);
}

TEST(GapHabit, ForgetsSlowlyWhatIsNotSeenAgain) {
  hooks::GapHabit habit;
  habit.note(8000, 20000, kCap);
  std::int64_t before = habit.bytes();
  for (int i = 0; i < 400; ++i) {
    habit.note(0, 15000, kCap);
    EXPECT_LE(habit.bytes(), before);
    before = habit.bytes();
  }
  EXPECT_LT(before, 200);
}

TEST(GapHabit, PredictsWhatWillBeReserved) {
  hooks::GapHabit habit;
  habit.note_reserved(20500, 18000, 20000);
  habit.note_reserved(24000, 24000, 15000);  // of the cache
  EXPECT_EQ(habit.reserved(20000, 1000, kCap), 20500);
  EXPECT_EQ(habit.reserved(20000, 22000, kCap), 22000) << "the cache only grows";
  EXPECT_EQ(habit.reserved(25500, 1000, kCap), kCap);
}

TEST(GapHabit, DoubtsWhereHolesMayTakeAPlanOverTheCap) {
  hooks::GapHabit habit;
  EXPECT_TRUE(habit.may_not_fit(20000, kCap, /*page_bytes=*/0));
  EXPECT_FALSE(habit.may_not_fit(20000, kCap, /*page_bytes=*/100));
  EXPECT_TRUE(habit.may_not_fit(25000, kCap, /*page_bytes=*/100));
  habit.note(4000, 21000, kCap);
  EXPECT_TRUE(habit.may_not_fit(20000, kCap, /*page_bytes=*/100)) << "twice what was seen";
  EXPECT_TRUE(habit.is_dear(kCap));
}

TEST(GapHabit, WithoutABudgetNothingIsLeftFree) {
  hooks::GapHabit habit;
  habit.note(500, 20000, 0);
  EXPECT_EQ(habit.bytes(), 0);
  EXPECT_FALSE(habit.may_not_fit(20000, 0, 0));
}

TEST(GapHabit, PagesAreBetterButForSmallCaps) {
  constexpr std::int64_t kMiB = std::int64_t{1} << 20U;
  EXPECT_FALSE(hooks::GapHabit::pages_are_better(0, 20 * kMiB));
  EXPECT_FALSE(hooks::GapHabit::pages_are_better(90 * kMiB, 20 * kMiB));
  EXPECT_TRUE(hooks::GapHabit::pages_are_better(256 * kMiB, 20 * kMiB));
  EXPECT_TRUE(hooks::GapHabit::pages_are_better(80000 * kMiB, 20 * kMiB));
}

}  // namespace
}  // namespace pudica::testing
