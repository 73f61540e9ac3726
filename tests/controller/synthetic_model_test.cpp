#include "support/synthetic_model.h"

#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

// The simulator and the peak formula agree on random plans, so that tests of the controller
// against the simulator are tests against the truth.
TEST(SyntheticModel, AgreesWithThePeakFormula) {
  constexpr std::uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 60; ++round) {
    SyntheticSpec spec;
    spec.encoder_layers = 1 + static_cast<int>(random() % 9);
    spec.decoder_layers = static_cast<int>(random() % 4);
    spec.heads = static_cast<std::int64_t>(random() % 2) * 4;
    spec.cast_bytes = static_cast<std::int64_t>(random() % 2) * 98304;
    spec.last_extra_bytes = static_cast<std::int64_t>(random() % 2) * 4000;
    spec.holds_outputs = random() % 2 == 0;
    SyntheticModel model(spec);
    const ShapeKey shape{4, 32 + static_cast<std::int64_t>(random() % 100),
                         16 + static_cast<std::int64_t>(random() % 100)};
    model.run(model.context(shape, Bytes(0)), {std::make_shared<const Plan>(), false});
    const StepContext context = model.context(shape, Bytes(0));
    StepCosts costs = model.true_costs(shape, context.gradients_present);
    costs.returning_bytes = context.returning_bytes.count();
    std::vector<std::uint8_t> choice;
    Plan plan;
    for (std::size_t i = 0; i < costs.layers.size(); ++i) {
      choice.push_back(static_cast<std::uint8_t>(random() % 2));
      plan.modes.push_back(costs.layers[i].modes[choice.back()].mode);
    }
    const auto outcome = model.run(context, {std::make_shared<const Plan>(plan), false});
    EXPECT_EQ(outcome.peak_bytes - context.base_bytes, Bytes(step_peak_bytes(costs, choice)));
  }
}

TEST(SyntheticModel, RevokesAtTheBudget) {
  Harness harness({});
  const ShapeKey shape{8, 256};
  harness.model.run(harness.model.context(shape, Bytes(0)),
                    {std::make_shared<const Plan>(), false});
  const Bytes budget = harness.budget_at(shape, 0.5);
  const auto outcome = harness.model.run(harness.model.context(shape, budget),
                                         {std::make_shared<const Plan>(), true});
  EXPECT_GT(outcome.revocations, 0);
  EXPECT_FALSE(outcome.overrun);
  EXPECT_LE(outcome.peak_bytes, budget);
}

}  // namespace
}  // namespace pudica::testing
