#include "pudica/planner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Four equal layers: keep 100, or keep 10 for 1 ms; each needs 120 while it runs.
Chain four_layers() {
  Chain chain;
  for (int i = 0; i < 4; ++i) chain.layers.push_back({{100, 120, 0}, {10, 120, 1'000'000}});
  chain.tail_bytes = 50;
  return chain;
}

TEST(Planner, KeepsAllWhenAllFits) {
  const auto plan = make_planner({})->solve(four_layers(), 450, {});
  ASSERT_TRUE(plan.has_value());
  EXPECT_THAT(plan->choice, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(plan->peak_bytes, 450);
  EXPECT_EQ(plan->time_ns, 0);
  EXPECT_EQ(plan->lower_bound_ns, 0);
}

TEST(Planner, RecomputesAsFewLayersAsTheBudgetAllowsAndNearlyProvesIt) {
  const auto plan = make_planner({})->solve(four_layers(), 449, {});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->time_ns, 1'000'000);
  EXPECT_LE(plan->lower_bound_ns, 1'000'000);
  EXPECT_GE(plan->lower_bound_ns, 990'000);
  EXPECT_LE(plan->peak_bytes, 449);
}

TEST(Planner, SaysByHowMuchTheFloorIsOverBudget) {
  const auto plan = make_planner({})->solve(four_layers(), 100, {});
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kOverBudget);
  EXPECT_THAT(plan.error().message, HasSubstr("150 bytes"));
  EXPECT_THAT(plan.error().message, HasSubstr("50 bytes"));
}

TEST(Planner, RefusesWhatIsNoChain) {
  const auto planner = make_planner({});
  Chain empty_layer = four_layers();
  empty_layer.layers[2].clear();
  const auto plan = planner->solve(empty_layer, 450, {});
  ASSERT_FALSE(plan.has_value());
  EXPECT_EQ(plan.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(plan.error().message, HasSubstr("layer 2"));
  EXPECT_EQ(planner->frontier(empty_layer).error().code, ErrorCode::kInvalidArgument);

  Chain negative_time = four_layers();
  negative_time.layers[1][1].time_ns = -1;
  EXPECT_EQ(planner->solve(negative_time, 450, {}).error().code, ErrorCode::kInvalidArgument);

  Chain many_modes = four_layers();
  many_modes.layers[0].assign(257, {1, 1, 1});
  EXPECT_EQ(planner->solve(many_modes, 450, {}).error().code, ErrorCode::kInvalidArgument);
}

TEST(Planner, PlansAChainOfNoLayers) {
  Chain chain;
  chain.tail_bytes = 30;
  const auto planner = make_planner({});
  EXPECT_TRUE(planner->solve(chain, 30, {})->choice.empty());
  EXPECT_EQ(planner->solve(chain, 29, {}).error().code, ErrorCode::kOverBudget);
  const auto frontier = planner->frontier(chain);
  ASSERT_TRUE(frontier.has_value());
  ASSERT_EQ(frontier->size(), 1U);
  EXPECT_EQ(frontier->front().peak_bytes, 30);
}

TEST(Planner, CountsTheFastestModesOwnTime) {
  Chain chain = four_layers();
  for (auto& layer : chain.layers) {
    for (ChainMode& mode : layer) mode.time_ns += 70;
  }
  const auto planner = make_planner({});
  const auto plan = planner->solve(chain, 449, {});
  EXPECT_EQ(plan->time_ns, 1'000'280);
  EXPECT_LE(plan->lower_bound_ns, 1'000'280);
  EXPECT_GE(plan->lower_bound_ns, 990'280);
  EXPECT_EQ(planner->frontier(chain)->back().time_ns, 280);
}

TEST(Planner, UsesAModeThatKeepsMoreForItsSmallerPeak) {
  // The second mode keeps as much and is slower, but is the only one to run within 120.
  Chain chain;
  chain.layers = {{{10, 100, 0}}, {{50, 130, 0}, {50, 60, 900}}};
  const auto plan = make_planner({})->solve(chain, 120, {});
  ASSERT_TRUE(plan.has_value());
  EXPECT_THAT(plan->choice, ElementsAre(0, 1));
}

TEST(Planner, FrontierHasEveryTradeOfASmallChain) {
  const auto frontier = make_planner({})->frontier(four_layers());
  ASSERT_TRUE(frontier.has_value());
  ASSERT_EQ(frontier->size(), 5U);
  // All four, three (10 + 10 + 10 + 120), two, one and none recomputed.
  const std::int64_t peaks[] = {150, 180, 270, 360, 450};
  for (int p = 0; p < 5; ++p) {
    EXPECT_EQ((*frontier)[p].peak_bytes, peaks[p]);
    EXPECT_EQ((*frontier)[p].time_ns, (4 - p) * 1'000'000);
  }
}

TEST(Planner, GivesTheSamePlanWhateverItPlannedBefore) {
  const auto used = make_planner({});
  Chain other = four_layers();
  other.layers.resize(2);
  for (const std::int64_t budget : {150, 200, 300, 400}) {
    const auto fresh = make_planner({})->solve(four_layers(), budget, {});
    (void)used->solve(other, 230, {}).has_value();
    (void)used->frontier(other).has_value();
    EXPECT_EQ(used->solve(four_layers(), budget, {})->choice, fresh->choice);
  }
}

TEST(Planner, TakesOptionsTooSmallForTheChain) {
  const auto planner = make_planner({.first_cells = 1, .second_cells = 1, .frontier_cells = 1});
  const auto plan = planner->solve(four_layers(), 300, {});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->time_ns, 2'000'000);
  EXPECT_TRUE(planner->frontier(four_layers()).has_value());
}

}  // namespace
}  // namespace pudica
