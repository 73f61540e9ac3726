// Selective modes: learned beside keep and full, planned exactly, forgotten with their menu.
#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

const ShapeKey kLongest{8, 512};

std::int64_t selective_layers(const Plan& plan) {
  return std::ranges::count_if(plan.modes,
                               [](Mode mode) { return mode.kind == Mode::Kind::kSelective; });
}

TEST(ControllerMenu, PlansOverTheMenuToTheByteAndBeatsKeepAndFull) {
  Harness harness({.menu_steps = 3});
  Harness plain({});
  const Bytes budget = harness.budget_at(kLongest, 0.4);
  double with_menu = 0;
  double without = 0;
  std::int64_t selective = 0;
  int step = 0;
  for (const std::int64_t length : lengths(40, 3)) {
    const auto done = harness.step({8, length}, budget);
    const auto other = plain.step({8, length}, budget);
    EXPECT_FALSE(done.outcome.overrun) << length;
    if (++step <= 10) continue;
    ASSERT_EQ(done.state, ControllerState::kPlanning) << step;
    EXPECT_EQ(done.outcome.peak_bytes, done.decision.plan->predicted_peak_bytes) << length;
    EXPECT_EQ(done.outcome.revocations, 0);
    with_menu += harness.true_extra_seconds(done);
    without += plain.true_extra_seconds(other);
    selective += selective_layers(*done.decision.plan);
  }
  EXPECT_GT(selective, 0);
  EXPECT_LT(with_menu, 0.6 * without);
}

TEST(ControllerMenu, LearnsAllModesInFewSteps) {
  Harness harness({.menu_steps = 3});
  int learning = 0;
  for (const std::int64_t length : lengths(20, 5)) {
    const auto done = harness.step({8, length}, harness.budget_at(kLongest, 0.5));
    learning += done.state == ControllerState::kLearning ? 1 : 0;
  }
  EXPECT_LE(learning, 4);
}

TEST(ControllerMenu, ALoneLayerLearnsItsMenuInTurns) {
  Harness harness({.encoder_layers = 1, .menu_steps = 2});
  ControllerState last = ControllerState::kLearning;
  for (const std::int64_t length : lengths(16, 5)) {
    last = harness.step({8, length}, harness.budget_at(kLongest, 0.5)).state;
  }
  EXPECT_EQ(last, ControllerState::kPlanning);
}

TEST(ControllerMenu, TheMenuOptionKeepsSelectiveModesOut) {
  ControllerOptions options;
  options.menu = {Mode::Kind::kKeep, Mode::Kind::kFull};
  Harness harness({.menu_steps = 3}, options);
  EXPECT_FALSE(harness.controller->wants_menus());
  for (const std::int64_t length : lengths(20, 5)) {
    const auto done = harness.step({8, length}, harness.budget_at(kLongest, 0.3));
    EXPECT_EQ(selective_layers(*done.decision.plan), 0);
  }
}

TEST(ControllerMenu, StateWithMenusIsRestored) {
  Harness taught({.menu_steps = 3});
  const Bytes budget = taught.budget_at(kLongest, 0.4);
  for (const std::int64_t length : lengths(20, 6)) taught.step({8, length}, budget);
  Harness fresh({.menu_steps = 3});
  ASSERT_TRUE(fresh.controller->restore(taught.controller->serialize("m"), "m").has_value());
  fresh.step({8, 64}, budget);  // the optimizer makes its state
  for (const std::int64_t length : {496, 72, 504}) {
    const auto step = fresh.step({8, length}, budget);
    EXPECT_EQ(step.state, ControllerState::kPlanning) << step.decision.plan->reason;
    EXPECT_EQ(step.outcome.peak_bytes, step.decision.plan->predicted_peak_bytes);
  }
}

}  // namespace
}  // namespace pudica::testing
