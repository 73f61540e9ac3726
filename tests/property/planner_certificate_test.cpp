// Goal: every plan is within its certificate of the optimum, and certificates are tight.
// Method: 10,000 chains of 2 to 12 layers against exact lists; longer ones by their certificates.
#include <gtest/gtest.h>

#include "planner_chains.h"
#include "pudica/planner.h"
#include "support/exhaustive_planner.h"
#include "support/pareto_planner.h"

namespace pudica {
namespace {

using testing::ChainKind;
using testing::ExhaustivePlanner;
using testing::ParetoPlanner;
using testing::pick;
using testing::Random;

constexpr std::uint64_t kSeed = 299792;

std::int64_t fastest_peak(const Chain& chain) {
  std::vector<std::uint8_t> choice;
  for (const auto& layer : chain.layers) {
    const auto fastest = std::ranges::min_element(layer, {}, &ChainMode::time_ns);
    choice.push_back(static_cast<std::uint8_t>(fastest - layer.begin()));
  }
  return evaluate(chain, choice).peak_bytes;
}

// Three times the slowest choice's extra time: about a step.
double step_ns(const Chain& chain) {
  double total = 0;
  for (const auto& layer : chain.layers) {
    const auto [least, most] = std::ranges::minmax_element(layer, {}, &ChainMode::time_ns);
    total += static_cast<double>(most->time_ns - least->time_ns);
  }
  return 3 * total;
}

TEST(ParetoPlanner, AgreesWithAllChoicesOfSmallChains) {
  Random random(kSeed);
  for (int n = 0; n < 300; ++n) {
    const Chain chain = testing::random_chain(random, testing::kAllKinds[n % 5],
                                              static_cast<std::size_t>(n % 6), 3);
    const ExhaustivePlanner all(chain);
    const ParetoPlanner lists(chain);
    for (const FrontierPoint& point : all.frontier()) {
      ASSERT_EQ(lists.best_ns(point.peak_bytes), all.best_ns(point.peak_bytes));
      ASSERT_EQ(lists.best_ns(point.peak_bytes - 1), all.best_ns(point.peak_bytes - 1));
    }
  }
}

TEST(Certificate, CoversTheOptimumOfTenThousandChains) {
  Random random(kSeed + 1);
  const auto planner = make_planner({});
  double worst = 0;
  for (int n = 0; n < 10000; ++n) {
    const ChainKind kind = testing::kAllKinds[n % 5];
    const auto layers =
        static_cast<std::size_t>(pick(random, 2, kind == ChainKind::kUniform ? 9 : 6));
    const auto modes = static_cast<std::size_t>(pick(random, 2, 4));
    const Chain chain = testing::random_chain(random, kind, layers, modes);
    const ParetoPlanner judge(chain);
    const std::int64_t floor = floor_plan(chain).peak_bytes;
    const std::int64_t budget = pick(random, floor, std::max(floor, fastest_peak(chain)));
    const auto plan = planner->solve(chain, budget, {});
    const auto best_ns = judge.best_ns(budget);
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " chain " + std::to_string(n));
    ASSERT_TRUE(plan.has_value() && best_ns.has_value());
    ASSERT_LE(plan->lower_bound_ns, *best_ns);
    ASSERT_GE(plan->time_ns, *best_ns);
    ASSERT_LE(plan->peak_bytes, budget);
    if (kind == ChainKind::kTies) continue;  // a nanosecond is a large share of their steps
    worst = std::max(worst, static_cast<double>(plan->time_ns - *best_ns) / step_ns(chain));
  }
  EXPECT_LE(worst, 5e-4);
}

// Deep chains against exact lists where those are short enough to have.
TEST(Certificate, CoversTheOptimumOfDeepUniformChains) {
  Random random(kSeed + 2);
  const auto planner = make_planner({});
  for (const std::size_t layers : {16, 24, 32}) {
    for (int n = 0; n < 6; ++n) {
      const Chain chain = testing::random_chain(random, ChainKind::kUniform, layers, 2);
      const ParetoPlanner judge(chain);
      const std::int64_t floor = floor_plan(chain).peak_bytes;
      for (int q = 0; q < 20; ++q) {
        const std::int64_t budget = pick(random, floor, std::max(floor, fastest_peak(chain)));
        const auto plan = planner->solve(chain, budget, {});
        ASSERT_TRUE(plan.has_value());
        ASSERT_LE(plan->lower_bound_ns, *judge.best_ns(budget));
        ASSERT_GE(plan->time_ns, *judge.best_ns(budget));
      }
    }
  }
}

TEST(Certificate, IsAThousandthOfAStepOnAverageAndFiveAtMost) {
  Random random(kSeed + 3);
  const auto planner = make_planner({});
  double sum = 0;
  double most = 0;
  int count = 0;
  for (int n = 0; n < 600; ++n) {
    constexpr std::size_t kLayers[] = {4, 8, 12, 24, 48, 80, 128};
    constexpr std::size_t kModes[] = {2, 4, 11};
    const Chain chain =
        testing::random_chain(random, testing::kAllKinds[n % 4], kLayers[n % 7], kModes[n % 3]);
    const std::int64_t floor = floor_plan(chain).peak_bytes;
    const std::int64_t budget = pick(random, floor, std::max(floor, fastest_peak(chain)));
    const auto plan = planner->solve(chain, budget, {});
    ASSERT_TRUE(plan.has_value());
    const double gap = static_cast<double>(plan->time_ns - plan->lower_bound_ns) / step_ns(chain);
    most = std::max(most, gap);
    sum += gap;
    ++count;
  }
  EXPECT_LE(most, 5e-3);
  EXPECT_LE(sum / count, 1e-3);
}

}  // namespace
}  // namespace pudica
