// Goal: the peak model predicts a whole step's peak to the byte for plans it has never seen.
// Method: a tensor-level simulator; costs are measured per segment from steps with all layers in
// one mode, then mixed plans are simulated and compared.
#include <gtest/gtest.h>

#include "pudica/peak_model.h"
#include "support/step_simulator.h"

namespace pudica {
namespace {

using testing::CastKind;
using testing::SimulatedModel;
using testing::StepSimulator;
using Random = std::mt19937_64;

constexpr std::uint64_t kSeed = 31337;
constexpr int kModels = 700;
constexpr int kPlansPerModel = 8;

std::vector<std::uint8_t> random_choice(Random& random, const SimulatedModel& model) {
  std::vector<std::uint8_t> choice;
  for (const auto& layer : model.layers) {
    choice.push_back(static_cast<std::uint8_t>(random() % layer.modes.size()));
  }
  return choice;
}

class StepPeak : public ::testing::TestWithParam<CastKind> {};

TEST_P(StepPeak, EqualsTheSimulatedPeakToTheByte) {
  Random random(kSeed + static_cast<std::uint64_t>(GetParam()));
  int released_plans = 0;
  for (int n = 0; n < kModels; ++n) {
    const SimulatedModel model = testing::random_model(random, 8, GetParam());
    const StepCosts costs = testing::measure_costs(model);
    StepSimulator simulator(model);
    for (int q = 0; q < kPlansPerModel; ++q) {
      const auto choice = random_choice(random, model);
      const auto step = simulator.run(choice);
      ASSERT_EQ(step_peak_bytes(costs, choice), step.peak_bytes)
          << "seed " << kSeed << " model " << n << " plan " << q;
      for (const auto& layer : step.layers) released_plans += layer.released_bytes > 0 ? 1 : 0;
    }
  }
  EXPECT_EQ(released_plans > 0, GetParam() != CastKind::kNone);
}

TEST_P(StepPeak, OfAPlannedStepIsWithinTheBudget) {
  Random random(kSeed + 10 + static_cast<std::uint64_t>(GetParam()));
  const auto planner = make_planner({});
  int planned = 0;
  int refused = 0;
  for (int n = 0; n < kModels; ++n) {
    const SimulatedModel model = testing::random_model(random, 8, GetParam());
    const ChainProblem problem = to_chain(testing::measure_costs(model));
    StepSimulator simulator(model);
    const std::int64_t most =
        simulator.run(std::vector<std::uint8_t>(model.layers.size(), 0)).peak_bytes;
    const auto budget = static_cast<std::int64_t>(static_cast<double>(most) *
                                                  (0.5 + 0.05 * static_cast<double>(n % 11)));
    if (problem.constant_bytes > budget) continue;
    const auto plan = planner->solve(problem.chain, budget - problem.offset_bytes, {});
    if (!plan.has_value()) {
      ++refused;
      continue;
    }
    ++planned;
    ASSERT_LE(simulator.run(plan->choice).peak_bytes, budget) << "seed " << kSeed << " model " << n;
  }
  EXPECT_GT(planned, kModels / 8);
  EXPECT_GT(refused, 0);
}

INSTANTIATE_TEST_SUITE_P(Casts, StepPeak,
                         ::testing::Values(CastKind::kNone, CastKind::kSameInAllModes,
                                           CastKind::kByMode));

}  // namespace
}  // namespace pudica
