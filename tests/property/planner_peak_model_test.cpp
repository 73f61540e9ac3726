// Goal: to_chain is the step's formula, term by term.
// Method: random costs with terms of either sign; every choice's peak by both.
#include <gtest/gtest.h>

#include "planner_chains.h"
#include "pudica/peak_model.h"

namespace pudica {
namespace {

using testing::pick;
using testing::Random;
constexpr std::uint64_t kSeed = 5150;

enum class Released { kNothing, kSameInAllModes, kByMode };

StepCosts random_costs(Random& random, Released released) {
  StepCosts costs;
  costs.layers.resize(static_cast<std::size_t>(pick(random, 0, 5)));
  for (LayerCosts& layer : costs.layers) {
    layer.gap_net_bytes = pick(random, -300, 900);
    layer.gap_peak_bytes = pick(random, -100, 3000);
    layer.residue_bytes = pick(random, -800, 800);
    layer.modes.resize(static_cast<std::size_t>(pick(random, 1, 4)));
    const std::int64_t same = released == Released::kNothing ? 0 : pick(random, 0, 500);
    for (LayerModeCosts& mode : layer.modes) {
      mode.forward_net_bytes = pick(random, -500, 1500);
      mode.forward_peak_bytes = pick(random, -200, 3000);
      mode.released_bytes = released == Released::kByMode ? pick(random, 0, 500) : same;
      mode.backward_peak_bytes = pick(random, -1500, 3000);
      mode.extra_seconds = static_cast<double>(pick(random, 0, 1000)) * 1e-3;
    }
  }
  costs.head_net_bytes = pick(random, -3000, 1000);
  costs.head_peak_bytes = pick(random, -100, 3000);
  costs.until_release_peak_bytes = pick(random, -100, 3000);
  costs.epilogue_net_bytes = pick(random, -500, 500);
  costs.epilogue_peak_bytes = pick(random, -100, 4000);
  costs.optimizer_peak_bytes = pick(random, -100, 6000);
  if (pick(random, 0, 1) == 0) return costs;
  costs.returning_bytes = pick(random, 0, 3000);
  costs.return_peak_bytes = pick(random, 0, 2000);
  return costs;
}

std::vector<std::uint8_t> random_choice(Random& random, const StepCosts& costs) {
  std::vector<std::uint8_t> choice;
  for (const LayerCosts& layer : costs.layers) {
    choice.push_back(static_cast<std::uint8_t>(
        pick(random, 0, static_cast<std::int64_t>(layer.modes.size()) - 1)));
  }
  return choice;
}

std::int64_t peak_by_chain(const ChainProblem& problem, std::span<const std::uint8_t> choice) {
  return std::max(problem.constant_bytes,
                  problem.offset_bytes + evaluate(problem.chain, choice).peak_bytes);
}

void check_equal(Released released) {
  Random random(kSeed);
  int decided_by_chain = 0;
  for (int n = 0; n < 20000; ++n) {
    const StepCosts costs = random_costs(random, released);
    const auto choice = random_choice(random, costs);
    const ChainProblem problem = to_chain(costs);
    const std::int64_t peak = step_peak_bytes(costs, choice);
    ASSERT_EQ(peak, peak_by_chain(problem, choice)) << "seed " << kSeed << " case " << n;
    decided_by_chain += peak > problem.constant_bytes ? 1 : 0;
  }
  EXPECT_GT(decided_by_chain, 4000);  // else the constant hides the chain
}

TEST(ToChain, IsExactWhereNothingIsReleased) { check_equal(Released::kNothing); }

TEST(ToChain, IsExactWhereEveryModeReleasesTheSame) { check_equal(Released::kSameInAllModes); }

TEST(ToChain, IsAnUpperBoundByNoMoreThanWhatModesReleaseApart) {
  Random random(kSeed + 1);
  int loose = 0;
  for (int n = 0; n < 20000; ++n) {
    const StepCosts costs = random_costs(random, Released::kByMode);
    const auto choice = random_choice(random, costs);
    std::int64_t apart = 0;
    for (std::size_t i = 0; i < choice.size(); ++i) {
      std::int64_t most = 0;
      for (const LayerModeCosts& mode : costs.layers[i].modes) {
        most = std::max(most, mode.released_bytes);
      }
      apart += most - costs.layers[i].modes[choice[i]].released_bytes;
    }
    const std::int64_t peak = step_peak_bytes(costs, choice);
    const std::int64_t bound = peak_by_chain(to_chain(costs), choice);
    ASSERT_GE(bound, peak) << "seed " << kSeed << " case " << n;
    ASSERT_LE(bound, peak + apart) << "seed " << kSeed << " case " << n;
    ASSERT_LE(peak_by_chain(to_chain(costs, ChainBound::kFromBelow), choice), peak)
        << "seed " << kSeed << " case " << n;
    loose += bound > peak ? 1 : 0;
  }
  EXPECT_GT(loose, 0);
}

TEST(ToChain, AgreesWithStepExtraSecondsToTheNanosecond) {
  Random random(kSeed + 2);
  for (int n = 0; n < 2000; ++n) {
    const StepCosts costs = random_costs(random, Released::kNothing);
    const auto choice = random_choice(random, costs);
    const std::int64_t time_ns = evaluate(to_chain(costs).chain, choice).time_ns;
    ASSERT_NEAR(static_cast<double>(time_ns), step_extra_seconds(costs, choice) * 1e9, 5.0);
  }
}

}  // namespace
}  // namespace pudica
