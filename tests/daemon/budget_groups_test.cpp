#include "daemon/budget_groups.h"

#include <gmock/gmock.h>

namespace pudica::daemon {
namespace {

using testing::HasSubstr;

// A group "gpu" with runs that confirm when told to. Bytes are in units of 1 MiB.
class BudgetGroupsTest : public testing::Test {
 protected:
  static Bytes mib(std::int64_t count) { return Bytes(count << 20); }

  void total(std::int64_t count) { ASSERT_TRUE(groups.set_total("gpu", mib(count))); }

  std::int64_t join(const std::string& run, std::int64_t share, std::int64_t floor = 0,
                    std::int64_t in_use = 0) {
    const auto granted = groups.join({"gpu", run, mib(share), mib(floor), mib(in_use)});
    EXPECT_TRUE(granted.has_value()) << (granted ? "" : granted.error().message);
    return granted ? granted->count() >> 20 : -1;
  }

  // Reports long enough for a lower need to count.
  void need(const std::string& run, std::int64_t count) {
    for (int i = 0; i < 32; ++i) groups.need(run, mib(count));
  }

  GroupMember member(const std::string& run) const {
    const auto view = groups.view("gpu");
    for (const GroupMember& member : view->runs) {
      if (member.id == run) return member;
    }
    ADD_FAILURE() << "no run " << run;
    return {};
  }
  std::int64_t budget(const std::string& run) const {
    return member(run).budget_bytes.count() >> 20;
  }
  // What the run is to use; -1: nothing is open.
  std::int64_t pending(const std::string& run) const {
    const auto bytes = member(run).pending_bytes;
    return bytes ? bytes->count() >> 20 : -1;
  }
  std::int64_t assigned() const { return groups.view("gpu")->assigned_bytes.count() >> 20; }

  // One step of the run: it takes up its latest order.
  void step(const std::string& run) {
    for (const BudgetOrder& order : groups.take_orders()) {
      if (order.run == run) groups.confirm(run, order.number);
    }
  }
  std::uint64_t number(const std::string& run) const {
    for (const BudgetOrder& order : groups.take_orders()) {
      if (order.run == run) return order.number;
    }
    return 0;
  }

  BudgetGroups groups;
};

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

TEST_F(BudgetGroupsTest, LoweredTotalTakesForceAsRunsConfirm) {
  total(100);
  join("a", 50, 10);
  join("b", 50, 10);
  total(60);
  EXPECT_EQ(groups.view("gpu")->total_bytes, mib(100));
  EXPECT_EQ(groups.view("gpu")->pending_total_bytes, mib(60));
  step("a");
  EXPECT_EQ(groups.view("gpu")->total_bytes, mib(80));
  step("b");
  EXPECT_EQ(groups.view("gpu")->total_bytes, mib(60));
  EXPECT_EQ(assigned(), 60);
}

TEST_F(BudgetGroupsTest, TotalBelowTheFloorsIsRefusedAndChangesNothing) {
  total(100);
  join("a", 50, 30);
  join("b", 50, 30);
  const auto refused = groups.set_total("gpu", mib(59));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverBudget);
  EXPECT_THAT(refused.error().message, HasSubstr("60.0 MiB"));
  EXPECT_EQ(groups.view("gpu")->pending_total_bytes, std::nullopt);
}

TEST_F(BudgetGroupsTest, GroupWithoutATotalGrantsWhatIsAskedUntilOneIsSet) {
  EXPECT_EQ(join("a", 80), 80);
  EXPECT_EQ(join("b", 80), 80);
  EXPECT_EQ(groups.view("gpu")->total_bytes, std::nullopt);
  groups.need("b", mib(200));
  EXPECT_EQ(pending("b"), -1);
  total(100);
  EXPECT_EQ(pending("a"), 50);
  EXPECT_EQ(pending("b"), 50);
}

TEST_F(BudgetGroupsTest, OperatorsShareIsKeptWhenOthersJoin) {
  total(100);
  join("a", 80);
  ASSERT_TRUE(groups.set_share("a", mib(60)));
  EXPECT_EQ(pending("a"), 60);
  step("a");
  EXPECT_EQ(join("b", 80), 40);
  EXPECT_EQ(member("a").share_bytes, mib(60));
}

TEST_F(BudgetGroupsTest, ShareAboveWhatIsLeftIsRefusedNamingIt) {
  total(100);
  join("a", 40);
  join("b", 40, 15);
  const auto refused = groups.set_share("b", mib(61));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverBudget);
  EXPECT_THAT(refused.error().message, HasSubstr("60.0 MiB left"));
  EXPECT_TRUE(groups.set_share("b", mib(60)));
  EXPECT_EQ(groups.set_share("b", mib(14)).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(groups.set_share("nobody", mib(60)).error().code, ErrorCode::kNotFound);
}

TEST_F(BudgetGroupsTest, ShareRaisedByAnOperatorIsGivenEvenIfNobodyNeedsIt) {
  total(100);
  join("a", 40);
  need("a", 10);
  ASSERT_TRUE(groups.set_share("a", mib(41)));
  EXPECT_EQ(pending("a"), 41);
}

TEST_F(BudgetGroupsTest, NeedFallsOnlyAfterAWindowOfReports) {
  total(100);
  join("a", 50);
  join("b", 50);
  need("a", 40);
  EXPECT_EQ(member("a").need_bytes, mib(40));
  for (int i = 0; i < 15; ++i) groups.need("a", mib(10));
  EXPECT_EQ(member("a").need_bytes, mib(40));
  groups.need("a", mib(45));
  EXPECT_EQ(member("a").need_bytes, mib(45));
  need("a", 10);
  EXPECT_EQ(member("a").need_bytes, mib(10));
}

TEST_F(BudgetGroupsTest, FirstReportsDoNotLowerARun) {
  total(100);
  join("a", 50);
  join("b", 50);
  groups.need("b", mib(90));
  groups.need("a", mib(10));
  EXPECT_EQ(pending("a"), -1);
}

TEST_F(BudgetGroupsTest, SmallChangesOfWhatIsLentAreLeftOut) {
  total(10000);
  join("a", 5000);
  groups.need("a", mib(8000));
  step("a");
  groups.need("a", mib(8020));
  EXPECT_EQ(pending("a"), -1);
  groups.need("a", mib(8100));
  EXPECT_EQ(pending("a"), 8100);
}

TEST_F(BudgetGroupsTest, RunThatChangesItsBudgetItselfIsCountedAndCorrected) {
  total(100);
  join("a", 50);
  groups.changed_itself("a", mib(70));
  EXPECT_EQ(assigned(), 70);
  EXPECT_EQ(pending("a"), 50);
  step("a");
  EXPECT_EQ(assigned(), 50);
}

TEST_F(BudgetGroupsTest, ValuesOutOfRangeAreRefusedOrClamped) {
  const Bytes absurd{std::numeric_limits<std::int64_t>::max()};
  EXPECT_FALSE(groups.set_total("gpu", absurd));
  EXPECT_FALSE(groups.set_total("gpu", Bytes(0)));
  EXPECT_FALSE(groups.set_total("gpu", Bytes(-1)));
  EXPECT_FALSE(groups.join({"gpu", "a", absurd, Bytes(0), Bytes(0)}));
  EXPECT_FALSE(groups.join({"gpu", "a", Bytes(1), absurd, Bytes(0)}));
  total(100);
  join("a", 50);
  groups.need("a", absurd);
  EXPECT_EQ(pending("a"), 100);
  groups.need("a", Bytes(std::numeric_limits<std::int64_t>::min()));
  EXPECT_FALSE(groups.set_share("a", absurd));
}

TEST_F(BudgetGroupsTest, RunMovesToAnotherGroupWithWhatItMayBeUsing) {
  total(100);
  join("a", 50);
  ASSERT_TRUE(groups.set_total("other", mib(40)));
  ASSERT_TRUE(groups.join({"other", "a", mib(30), Bytes(0), mib(50)}));
  EXPECT_EQ(assigned(), 0);
  EXPECT_EQ(groups.group_of("a"), "other");
  EXPECT_EQ(groups.view("other")->assigned_bytes, mib(50));
  EXPECT_EQ(groups.take_orders().front().budget_bytes, mib(30));
}

TEST_F(BudgetGroupsTest, UnknownGroupIsNotFoundAndEmptyOnesVanish) {
  EXPECT_EQ(groups.view("gpu").error().code, ErrorCode::kNotFound);
  join("a", 10);
  groups.leave("a");
  EXPECT_TRUE(groups.view().empty());
  total(100);
  join("a", 10);
  groups.leave("a");
  ASSERT_EQ(groups.view().size(), 1U) << "a total that was set stays";
}

}  // namespace
}  // namespace pudica::daemon
