// Goal: solve() is never wrong and hardly ever worse than the best of all choices.
// Method: small random chains of every kind, budgets from below the floor to more than enough,
// against enumeration.
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

constexpr std::uint64_t kSeed = 20240611;

std::int64_t slowest_ns(const Chain& chain) {
  std::int64_t total = 0;
  for (const auto& layer : chain.layers) {
    total += std::ranges::max_element(layer, {}, &ChainMode::time_ns)->time_ns;
  }
  return total;
}

// The documented loss: the table rounds each layer by less than a cell. Stage one's cells divide
// the slowest time, stage two's the time of the plan that stage one finds.
std::int64_t most_loss_ns(const Chain& chain, std::int64_t best_ns) {
  const auto layers = static_cast<std::int64_t>(chain.layers.size());
  const PlannerOptions options;
  const std::int64_t first = layers * (slowest_ns(chain) / (options.first_cells - 2 - layers) + 1);
  return layers * ((best_ns + first) / (options.second_cells - 2 - layers) + 1);
}

std::int64_t random_budget(Random& random, const ExhaustivePlanner& judge) {
  const std::int64_t span = judge.enough_bytes() - judge.floor_bytes();
  switch (pick(random, 0, 5)) {
    case 0:
      return judge.floor_bytes();
    case 1:
      return judge.enough_bytes() + pick(random, 0, 2) - 1;
    case 2:
      return judge.floor_bytes() - pick(random, 1, 100);
    default:
      return judge.floor_bytes() + pick(random, 0, span + span / 50);
  }
}

// One budget: everything that solve() promises.
void check_solve(Planner& planner, const Chain& chain, const ExhaustivePlanner& judge,
                 std::int64_t budget, std::span<const std::uint8_t> warm) {
  const auto plan = planner.solve(chain, budget, warm);
  const auto best_ns = judge.best_ns(budget);
  ASSERT_EQ(plan.has_value(), best_ns.has_value());
  if (!plan.has_value()) {
    EXPECT_EQ(plan.error().code, ErrorCode::kOverBudget);
    return;
  }
  EXPECT_LE(plan->peak_bytes, budget);
  const ChainPlan exact = evaluate(chain, plan->choice);
  EXPECT_EQ(plan->peak_bytes, exact.peak_bytes);
  EXPECT_EQ(plan->time_ns, exact.time_ns);
  EXPECT_LE(plan->lower_bound_ns, *best_ns);
  EXPECT_GE(plan->time_ns, *best_ns);
  EXPECT_LE(plan->time_ns, *best_ns + most_loss_ns(chain, *best_ns));
}

class PlannerAgainstAllChoices : public ::testing::TestWithParam<ChainKind> {};

TEST_P(PlannerAgainstAllChoices, FitsStatesItsValueAndIsNearTheBest) {
  Random random(kSeed + static_cast<std::uint64_t>(GetParam()));
  const auto planner = make_planner({});
  for (int n = 0; n < 2000; ++n) {
    const auto layers = static_cast<std::size_t>(pick(random, 1, 6));
    const auto modes = static_cast<std::size_t>(pick(random, 1, 4));
    const Chain chain = testing::random_chain(random, GetParam(), layers, modes);
    const ExhaustivePlanner judge(chain);
    for (int q = 0; q < 4; ++q) {
      SCOPED_TRACE("seed " + std::to_string(kSeed) + " chain " + std::to_string(n));
      check_solve(*planner, chain, judge, random_budget(random, judge), {});
      if (HasFailure()) return;
    }
  }
}

TEST_P(PlannerAgainstAllChoices, KeepsItsPromisesFromAnyWarmChoice) {
  Random random(kSeed + 100 + static_cast<std::uint64_t>(GetParam()));
  const auto planner = make_planner({});
  for (int n = 0; n < 1000; ++n) {
    const auto layers = static_cast<std::size_t>(pick(random, 1, 6));
    const auto modes = static_cast<std::size_t>(pick(random, 1, 4));
    const Chain chain = testing::random_chain(random, GetParam(), layers, modes);
    const ExhaustivePlanner judge(chain);
    std::vector<std::uint8_t> warm(layers);
    for (auto& choice : warm) {
      choice = static_cast<std::uint8_t>(pick(random, 0, static_cast<std::int64_t>(modes) - 1));
    }
    // Some have the wrong size or name modes that do not exist: ignored.
    if (pick(random, 0, 9) == 0) warm.pop_back();
    if (!warm.empty() && pick(random, 0, 9) == 0) warm.back() = 200;
    const std::int64_t budget = random_budget(random, judge);
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " chain " + std::to_string(n));
    check_solve(*planner, chain, judge, budget, warm);
    const bool valid = warm.size() == layers && (warm.empty() || warm.back() != 200);
    if (valid && evaluate(chain, warm).peak_bytes <= budget) {
      EXPECT_LE(planner->solve(chain, budget, warm)->time_ns, evaluate(chain, warm).time_ns);
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, PlannerAgainstAllChoices, ::testing::ValuesIn(testing::kAllKinds));

TEST(FloorPlan, IsTheLeastPeakAndTheFastestChoiceFoundAtIt) {
  Random random(kSeed + 200);
  for (int n = 0; n < 4000; ++n) {
    const ChainKind kind = testing::kAllKinds[n % 5];
    const Chain chain = testing::random_chain(random, kind, static_cast<std::size_t>(n % 6 + 1),
                                              static_cast<std::size_t>(n % 4 + 1));
    const ExhaustivePlanner judge(chain);
    const ChainPlan plan = floor_plan(chain);
    SCOPED_TRACE("seed " + std::to_string(kSeed) + " chain " + std::to_string(n));
    ASSERT_EQ(plan.peak_bytes, judge.floor_bytes());
    ASSERT_EQ(plan.time_ns, evaluate(chain, plan.choice).time_ns);
    ASSERT_LE(plan.lower_bound_ns, *judge.best_ns(plan.peak_bytes));
  }
}

}  // namespace
}  // namespace pudica
