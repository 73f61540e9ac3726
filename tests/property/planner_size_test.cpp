// Goal: chains of any size plan as small ones do.
// Method: chains of many terabytes, where the table's units are coarse, and the ends of int64.
#include <limits>

#include <gtest/gtest.h>

#include "planner_chains.h"
#include "pudica/planner.h"
#include "support/exhaustive_planner.h"

namespace pudica {
namespace {

using testing::ChainKind;
using testing::ExhaustivePlanner;
using testing::pick;
using testing::Random;

constexpr std::uint64_t kSeed = 4096;

Chain scaled_up(Chain chain, std::int64_t factor, std::int64_t odd) {
  for (auto& layer : chain.layers) {
    for (ChainMode& mode : layer) {
      mode.kept_bytes = mode.kept_bytes * factor + odd;
      mode.peak_bytes = mode.peak_bytes * factor + 3 * odd;
    }
  }
  chain.tail_bytes = chain.tail_bytes * factor + odd;
  return chain;
}

TEST(PlannerSizes, PlansManyTerabytesExactlyToTheByte) {
  Random random(kSeed);
  const auto planner = make_planner({});
  for (int n = 0; n < 1500; ++n) {
    const ChainKind kind = testing::kAllKinds[n % 4];
    const Chain chain =
        scaled_up(testing::random_chain(random, kind, static_cast<std::size_t>(n % 6 + 1), 4),
                  std::int64_t{1} << pick(random, 4, 24), pick(random, 0, 15));
    const ExhaustivePlanner judge(chain);
    for (const std::int64_t budget :
         {judge.floor_bytes() - 1, judge.floor_bytes(),
          judge.floor_bytes() + (judge.enough_bytes() - judge.floor_bytes()) / 2,
          judge.enough_bytes() - 1, judge.enough_bytes()}) {
      SCOPED_TRACE("seed " + std::to_string(kSeed) + " chain " + std::to_string(n));
      const auto plan = planner->solve(chain, budget, {});
      const auto best_ns = judge.best_ns(budget);
      ASSERT_EQ(plan.has_value(), best_ns.has_value());
      if (!plan.has_value()) continue;
      ASSERT_LE(plan->peak_bytes, budget);
      ASSERT_EQ(plan->peak_bytes, evaluate(chain, plan->choice).peak_bytes);
      ASSERT_GE(plan->time_ns, *best_ns);
      ASSERT_LE(plan->lower_bound_ns, *best_ns);
    }
    const auto frontier = planner->frontier(chain);
    ASSERT_TRUE(frontier.has_value());
    ASSERT_EQ(frontier->front().peak_bytes, judge.floor_bytes());
    for (const FrontierPoint& point : *frontier) {
      ASSERT_GE(point.time_ns, *judge.best_ns(point.peak_bytes));
    }
  }
}

TEST(PlannerSizes, LongChainsOfTerabytesFitAndAreCertified) {
  Random random(kSeed + 1);
  const auto planner = make_planner({});
  for (int n = 0; n < 40; ++n) {
    const Chain chain =
        scaled_up(testing::random_chain(random, testing::kAllKinds[n % 3], 128, 8), 1 << 18, 5);
    const std::int64_t floor = floor_plan(chain).peak_bytes;
    const std::int64_t most = evaluate(chain, std::vector<std::uint8_t>(128, 0)).peak_bytes;
    const std::int64_t budget = floor + (most - floor) / 40 * (n % 39 + 1);
    const auto plan = planner->solve(chain, budget, {});
    ASSERT_TRUE(plan.has_value());
    EXPECT_LE(plan->peak_bytes, budget);
    EXPECT_LE(plan->lower_bound_ns, plan->time_ns);
    EXPECT_LE(static_cast<double>(plan->time_ns - plan->lower_bound_ns),
              0.05 * static_cast<double>(plan->time_ns) + 1e7)
        << "seed " << kSeed << " chain " << n;
  }
}

TEST(PlannerSizes, TakesByteCountsAtTheEndOfTheRange) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 62) - 1;
  Chain chain;
  for (int i = 0; i < 12; ++i) chain.layers.push_back({{kMost, kMost, 0}, {64, 128, 1000}});
  const auto planner = make_planner({});
  const auto plan = planner->solve(chain, 12 * 64 + 64, {});
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->peak_bytes, 12 * 64 + 64);
  EXPECT_EQ(plan->time_ns, 12'000);
  EXPECT_FALSE(planner->solve(chain, 12 * 64 + 63, {}).has_value());

  // One layer may hold its bytes: the last, whose budget is what the others leave.
  const auto rich = planner->solve(chain, std::numeric_limits<std::int64_t>::max() - 1, {});
  ASSERT_TRUE(rich.has_value());
  EXPECT_LE(rich->time_ns, 11'000);
  ASSERT_TRUE(planner->frontier(chain).has_value());
  EXPECT_EQ(planner->frontier(chain)->front().peak_bytes, 12 * 64 + 64);
}

TEST(PlannerSizes, TakesTimesOfDaysAndOfNothing) {
  Chain chain;
  constexpr std::int64_t kDays = std::int64_t{1} << 50;
  for (int i = 0; i < 40; ++i) chain.layers.push_back({{1000, 1000, 0}, {10, 1000, kDays - i}});
  const auto planner = make_planner({});
  const auto plan = planner->solve(chain, 21'000, {});
  ASSERT_TRUE(plan.has_value());
  EXPECT_LE(plan->peak_bytes, 21'000);
  EXPECT_LE(plan->time_ns, 21 * kDays);
  const auto frontier = planner->frontier(chain);
  ASSERT_TRUE(frontier.has_value());
  EXPECT_EQ(frontier->back().time_ns, 0);

  for (auto& layer : chain.layers) layer[1].time_ns = 0;
  EXPECT_EQ(planner->solve(chain, 21'000, {})->time_ns, 0);
  EXPECT_EQ(planner->frontier(chain)->size(), 1U);
}

}  // namespace
}  // namespace pudica
