// A group's total, the shares that an operator sets, and what runs say that they need.
#include "daemon/budget_groups_fixture.h"

namespace pudica::daemon {
namespace {

using testing::HasSubstr;

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
