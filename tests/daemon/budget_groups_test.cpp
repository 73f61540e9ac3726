// What a group gives its runs and takes back.
#include "daemon/budget_groups_fixture.h"

namespace pudica::daemon {
namespace {

TEST_F(BudgetGroupsTest, RunBeginsWithItsShareWhereThatIsFree) {
  total(100);
  EXPECT_EQ(join("a", 60), 60);
  EXPECT_TRUE(groups.take_orders().empty());
  EXPECT_EQ(assigned(), 60);
}

TEST_F(BudgetGroupsTest, UnusedBudgetIsLentOnceItsOwnerHasComeDown) {
  total(100);
  join("a", 50);
  join("b", 50);
  need("a", 20);
  groups.need("b", mib(90));
  EXPECT_EQ(pending("a"), 20);
  EXPECT_EQ(pending("b"), -1) << "not covered before a has confirmed";
  step("a");
  EXPECT_EQ(pending("b"), 80);
  EXPECT_EQ(assigned(), 100);
  step("b");
  EXPECT_EQ(budget("a"), 20);
  EXPECT_EQ(budget("b"), 80);
}

TEST_F(BudgetGroupsTest, LenderGetsItsShareBackAfterTheBorrowersStep) {
  total(100);
  join("a", 50);
  join("b", 50);
  need("a", 20);
  groups.need("b", mib(90));
  step("a");
  step("b");
  groups.need("a", mib(50));
  EXPECT_EQ(pending("b"), 50);
  EXPECT_EQ(pending("a"), -1);
  step("b");
  EXPECT_EQ(pending("a"), 50);
  step("a");
  EXPECT_EQ(budget("a"), 50);
  EXPECT_EQ(assigned(), 100);
}

TEST_F(BudgetGroupsTest, LenderThatHasNotComeDownYetKeepsItsShareAtOnce) {
  total(100);
  join("a", 50);
  join("b", 50);
  need("a", 20);
  groups.need("b", mib(90));
  groups.need("a", mib(50));
  EXPECT_EQ(pending("a"), 50) << "replaces the lowering";
  EXPECT_EQ(pending("b"), -1);
}

TEST_F(BudgetGroupsTest, BytesThatNobodyHasAShareOfAreLentToo) {
  total(100);
  join("a", 40);
  groups.need("a", mib(70));
  EXPECT_EQ(pending("a"), 70);
}

TEST_F(BudgetGroupsTest, LoweringCountsOnlyOnceConfirmed) {
  total(100);
  join("a", 100);
  need("a", 30);
  EXPECT_EQ(pending("a"), -1) << "nobody wants it";
  EXPECT_EQ(join("b", 100), 0) << "nothing is free yet";
  EXPECT_EQ(assigned(), 100);
  step("a");
  EXPECT_EQ(assigned(), 100);
  EXPECT_EQ(pending("b"), 50);
}

TEST_F(BudgetGroupsTest, OrdersStayUntilConfirmed) {
  total(100);
  join("a", 50);
  groups.need("a", mib(70));
  const auto first = groups.take_orders();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(groups.take_orders(), first);
  step("a");
  EXPECT_TRUE(groups.take_orders().empty());
}

TEST_F(BudgetGroupsTest, ConfirmationsMayComeTwiceLateOrBeRubbish) {
  total(100);
  join("a", 50);
  join("b", 50);
  groups.confirm("a", 99);
  groups.confirm("nobody", 1);
  need("a", 20);
  groups.need("b", mib(90));
  const std::uint64_t lowering = number("a");
  groups.confirm("a", lowering);
  step("b");
  groups.need("a", mib(50));
  step("b");
  step("a");
  EXPECT_EQ(budget("a"), 50);
  groups.confirm("a", lowering);  // again, late: a uses 50 by now
  EXPECT_EQ(budget("a"), 50);
  EXPECT_EQ(assigned(), 100);
}

TEST_F(BudgetGroupsTest, ConfirmationOfAReplacedOrderLeavesTheLaterOneOpen) {
  total(100);
  join("a", 50);
  groups.need("a", mib(60));
  const std::uint64_t replaced = number("a");
  groups.need("a", mib(80));
  groups.confirm("a", replaced);
  EXPECT_EQ(pending("a"), 80);
  EXPECT_EQ(assigned(), 80);
}

TEST_F(BudgetGroupsTest, SharesAreScaledTogetherWhereTheyExceedTheTotal) {
  total(100);
  EXPECT_EQ(join("a", 80), 80);
  EXPECT_EQ(join("b", 80), 20);
  EXPECT_EQ(pending("a"), 50);
  step("a");
  EXPECT_EQ(pending("b"), 50);
  groups.leave("a");
  EXPECT_EQ(member("b").share_bytes, mib(80));
  EXPECT_EQ(pending("b"), 80);
}

TEST_F(BudgetGroupsTest, RunWhoseFloorDoesNotFitCountsAndTheOthersComeDownToTheirs) {
  total(100);
  join("a", 80, 70);
  EXPECT_EQ(join("b", 50, 40), 20) << "what is free; it waits for the rest";
  EXPECT_EQ(assigned(), 100);
  EXPECT_EQ(pending("a"), 70);
  EXPECT_EQ(groups.begin("b"), mib(40)) << "and can wait no longer";
  EXPECT_EQ(assigned(), 120);
  EXPECT_EQ(groups.view("gpu")->total_bytes, mib(120));
  EXPECT_EQ(groups.view("gpu")->pending_total_bytes, mib(100));
  step("a");
  EXPECT_EQ(assigned(), 110) << "the floors: nobody can do with less";
  EXPECT_EQ(budget("a"), 70);
  EXPECT_EQ(pending("a"), -1) << "and nobody is told to";
  groups.leave("b");
  EXPECT_EQ(groups.view("gpu")->pending_total_bytes, std::nullopt);
}

TEST_F(BudgetGroupsTest, RunThatHasNotBegunWaitsForItsFloor) {
  total(100);
  join("a", 100, 10);
  EXPECT_EQ(join("b", 40, 40), 0);
  EXPECT_EQ(assigned(), 100);
  step("a");
  EXPECT_EQ(groups.ordered("b"), mib(40));
  EXPECT_EQ(groups.begin("b"), mib(40));
  EXPECT_LE(assigned(), 100);
  EXPECT_EQ(pending("b"), -1) << "its first step is under what the answer says";
}

TEST_F(BudgetGroupsTest, RunThatCannotDoWithLessIsToldNoLessAgain) {
  total(100);
  join("a", 50, 10);
  join("b", 50, 10);
  total(60);
  const std::uint64_t told = number("a");
  groups.confirm("a", told);
  groups.takes_no_less("a", mib(45));
  EXPECT_EQ(member("a").floor_bytes, mib(45));
  step("a");
  step("b");
  EXPECT_EQ(budget("a"), 45);
  EXPECT_EQ(budget("b"), 15);
  EXPECT_EQ(assigned(), 60);
}

TEST_F(BudgetGroupsTest, TotalMayRiseWhileTheFloorsExceedIt) {
  total(100);
  join("a", 80, 70);
  join("b", 50, 40);
  groups.begin("b");
  EXPECT_TRUE(groups.set_total("gpu", mib(105)).has_value());
  EXPECT_FALSE(groups.set_total("gpu", mib(104)).has_value());
}

TEST_F(BudgetGroupsTest, WhatIsKeptCountsUntilItsRunsComeBackOrAreGone) {
  total(100);
  join("a", 50, 10);
  join("b", 30, 10);
  join("c", 20, 10);
  need("a", 20);
  need("b", 60);
  need("c", 20);
  step("a");
  step("b");
  ASSERT_TRUE(groups.set_share("c", mib(20)).has_value());
  const std::int64_t before = assigned();
  BudgetGroups after;
  after.restore({{"gpu", *groups.total("gpu")}}, groups.kept());
  EXPECT_EQ(after.view("gpu")->assigned_bytes.count() >> 20, before);
  EXPECT_EQ(after.view("gpu")->total_bytes, mib(100));
  EXPECT_THAT(after.take_orders(), testing::IsEmpty()) << "nobody is there to be told";
  const auto newcomer = after.join({"gpu", "d", mib(90), Bytes(0), Bytes(0)});
  EXPECT_LE(newcomer->count() >> 20, 100 - before);
  EXPECT_LE(after.view("gpu")->assigned_bytes, mib(100));
  after.leave("d");
  // Who comes back says that it uses more than was confirmed: more than was promised it cannot.
  const Bytes held = member("b").budget_bytes;
  ASSERT_TRUE(after.join({"gpu", "b", held, mib(10), held}).has_value());
  EXPECT_EQ(after.view("gpu")->assigned_bytes.count() >> 20, before);
  after.leave("a");
  after.leave("c");
  EXPECT_LE(after.view("gpu")->assigned_bytes, mib(100));
  EXPECT_EQ(after.view("gpu")->runs.size(), 1U);
}

TEST_F(BudgetGroupsTest, KeptIsWhatARunMayBeUsing) {
  total(100);
  join("a", 60);
  join("b", 40);
  need("a", 10);
  const auto kept = groups.kept();
  ASSERT_EQ(kept.size(), 2U);
  EXPECT_EQ(kept[0].bound_bytes, mib(60)) << "told to come down, and not heard of since";
  EXPECT_EQ(kept[0].need_bytes, mib(10));
  EXPECT_TRUE(kept[0].need_known);
  EXPECT_FALSE(kept[1].need_known);
}

TEST_F(BudgetGroupsTest, NobodyIsLoweredBelowItsFloor) {
  total(100);
  join("a", 60, 45);
  join("b", 40, 10);
  need("a", 5);
  groups.need("b", mib(100));
  EXPECT_EQ(pending("a"), 45);
}

TEST_F(BudgetGroupsTest, LostRunStaysCountedUntilItLeaves) {
  total(100);
  join("a", 50);
  join("b", 50);
  groups.lost("a");
  groups.need("b", mib(90));
  EXPECT_EQ(pending("b"), -1);
  EXPECT_TRUE(member("a").lost);
  groups.leave("a");
  EXPECT_EQ(pending("b"), 90);
}

TEST_F(BudgetGroupsTest, RunThatComesBackIsCountedWithTheLargerOfWhatIsKnown) {
  total(100);
  join("a", 50);
  join("b", 50);
  groups.lost("a");
  EXPECT_EQ(join("a", 50, 0, 30), 50);
  EXPECT_EQ(assigned(), 100);
  EXPECT_FALSE(member("a").lost);
  EXPECT_EQ(pending("a"), 50) << "told again, so that its answer settles what it uses";
}

TEST_F(BudgetGroupsTest, RunThatAlreadyUsesABudgetIsCountedAndBroughtDown) {
  total(100);
  join("a", 50);
  EXPECT_EQ(join("b", 50, 0, 90), 50);
  EXPECT_EQ(assigned(), 140);
  EXPECT_EQ(groups.view("gpu")->total_bytes, mib(140));
  EXPECT_EQ(groups.view("gpu")->pending_total_bytes, mib(100));
  step("b");
  EXPECT_EQ(assigned(), 100);
  EXPECT_EQ(groups.view("gpu")->pending_total_bytes, std::nullopt);
}

}  // namespace
}  // namespace pudica::daemon
