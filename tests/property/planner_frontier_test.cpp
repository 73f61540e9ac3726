// Goal: the frontier holds what it says, and misses little.
// Method: against the frontier of all choices.
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

constexpr std::uint64_t kSeed = 77001;

class FrontierAgainstAllChoices : public ::testing::TestWithParam<ChainKind> {};

TEST_P(FrontierAgainstAllChoices, IsMonotoneAchievableAndNearTheBest) {
  Random random(kSeed + static_cast<std::uint64_t>(GetParam()));
  const auto planner = make_planner({});
  const PlannerOptions options;
  for (int n = 0; n < 1500; ++n) {
    const auto layers = pick(random, 1, 6);
    const auto modes = static_cast<std::size_t>(pick(random, 1, 4));
    const Chain chain =
        testing::random_chain(random, GetParam(), static_cast<std::size_t>(layers), modes);
    const ExhaustivePlanner judge(chain);
    const auto frontier = planner->frontier(chain);
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " chain " + std::to_string(n));
    ASSERT_TRUE(frontier.has_value());
    ASSERT_FALSE(frontier->empty());
    EXPECT_EQ(frontier->front().peak_bytes, judge.floor_bytes());
    // With enough bytes for everything, the last point is the fastest choice.
    EXPECT_EQ(frontier->back().time_ns, judge.frontier().back().time_ns);
    EXPECT_EQ(frontier->back().peak_bytes, judge.enough_bytes());
    const std::int64_t span = judge.frontier().front().time_ns + 15'000'000 * layers;
    const std::int64_t loss = layers * (span / (options.frontier_cells - 2 - layers) + 1);
    for (std::size_t p = 0; p < frontier->size(); ++p) {
      const FrontierPoint& point = (*frontier)[p];
      if (p > 0) {
        EXPECT_GT(point.peak_bytes, (*frontier)[p - 1].peak_bytes);
        EXPECT_LT(point.time_ns, (*frontier)[p - 1].time_ns);
      }
      const auto best_ns = judge.best_ns(point.peak_bytes);
      ASSERT_TRUE(best_ns.has_value());
      EXPECT_GE(point.time_ns, *best_ns);
    }
    // At every budget where the optimum steps, the frontier's value there is near it.
    for (const FrontierPoint& exact : judge.frontier()) {
      std::int64_t value = frontier->front().time_ns;
      for (const FrontierPoint& point : *frontier) {
        if (point.peak_bytes <= exact.peak_bytes) value = point.time_ns;
      }
      EXPECT_LE(value, exact.time_ns + loss);
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FrontierAgainstAllChoices, ::testing::ValuesIn(testing::kAllKinds));

// Chains too large to enumerate: solve() at each point's budget must do about as well, which shows
// that the point is achievable, and no budget's certificate may contradict a point.
TEST(Frontier, AgreesWithSolveOnLongChains) {
  Random random(kSeed + 50);
  const auto planner = make_planner({});
  for (const std::size_t layers : {24, 80, 300}) {
    const Chain chain = testing::random_chain(random, ChainKind::kHeterogeneous, layers, 6);
    const auto frontier = planner->frontier(chain);
    ASSERT_TRUE(frontier.has_value());
    ASSERT_GT(frontier->size(), 300U);
    const std::int64_t cell = frontier->front().time_ns / 400;
    for (std::size_t p = 0; p < frontier->size(); p += 37) {
      const FrontierPoint& point = (*frontier)[p];
      const auto plan = planner->solve(chain, point.peak_bytes, {});
      ASSERT_TRUE(plan.has_value());
      EXPECT_LE(plan->lower_bound_ns, point.time_ns);
      EXPECT_LE(plan->time_ns, point.time_ns + cell) << "layers " << layers << " point " << p;
    }
  }
}

}  // namespace
}  // namespace pudica
