#include "controller/phase.h"

#include <gtest/gtest.h>

namespace pudica {
namespace {

PhaseInputs learned() {
  PhaseInputs inputs;
  inputs.structure_known = inputs.costs_known = inputs.fit = true;
  inputs.recorded_steps = 2;
  return inputs;
}

TEST(Phase, PlansOnceEverythingIsFit) {
  EXPECT_EQ(next_phase(learned(), {}).state, ControllerState::kPlanning);
}

TEST(Phase, LearnsWhileAnythingIsMissing) {
  for (int missing = 0; missing < 5; ++missing) {
    PhaseInputs inputs = learned();
    if (missing == 0) inputs.structure_known = false;
    if (missing == 1) inputs.costs_known = false;
    if (missing == 2) inputs.fit = false;
    if (missing == 3) inputs.recorded_steps = 1;
    if (missing == 4) inputs.relearning = true;
    inputs.unknown = "not measured yet";
    const Phase phase = next_phase(inputs, {});
    EXPECT_EQ(phase.state, ControllerState::kLearning) << missing;
    EXPECT_FALSE(phase.reason.empty()) << missing;
  }
}

TEST(Phase, EndsWarmUpWithWhatIsKnown) {
  PhaseInputs inputs = learned();
  inputs.fit = false;
  inputs.relearning = true;
  inputs.learning_steps = ControllerOptions{}.warmup_max_steps;
  EXPECT_EQ(next_phase(inputs, {}).state, ControllerState::kPlanning);
}

TEST(Phase, StandsDownWhenWarmUpTaughtNothing) {
  PhaseInputs inputs;
  inputs.learning_steps = ControllerOptions{}.warmup_max_steps;
  EXPECT_EQ(next_phase(inputs, {}).state, ControllerState::kStandingDown);
  inputs.structure_known = true;
  inputs.unknown = "not measured yet: head";
  const Phase phase = next_phase(inputs, {});
  EXPECT_EQ(phase.state, ControllerState::kStandingDown);
  EXPECT_NE(phase.reason.find("head"), std::string::npos);
}

TEST(Phase, StandsDownAtOnceWhereNothingCanBeMeasured) {
  PhaseInputs inputs;
  inputs.structure_known = inputs.unmeasurable = true;
  const Phase phase = next_phase(inputs, {});
  EXPECT_EQ(phase.state, ControllerState::kStandingDown);
  EXPECT_NE(phase.reason.find("more than once"), std::string::npos);
}

TEST(DriftDetector, SeesThreeMisfitsInARow) {
  DriftDetector drift(0.01);
  EXPECT_FALSE(drift.add(0.02));
  EXPECT_FALSE(drift.add(-0.02));
  EXPECT_FALSE(drift.add(0.001)) << "a fit in between starts the count anew";
  EXPECT_FALSE(drift.add(0.02));
  EXPECT_FALSE(drift.add(0.02));
  EXPECT_TRUE(drift.add(-0.02));
  EXPECT_FALSE(drift.add(0.02));
}

TEST(DriftDetector, FruitlessDriftsBecomeRarer) {
  DriftDetector drift(0.01);
  drift.drift_was_fruitless();
  EXPECT_TRUE(drift.had_fruitless_drift());
  int steps = 1;
  while (!drift.add(0.5)) ++steps;
  EXPECT_EQ(steps, 2 * DriftDetector::kStepsInARow);
  drift.reset();
  EXPECT_FALSE(drift.had_fruitless_drift());
}

}  // namespace
}  // namespace pudica
