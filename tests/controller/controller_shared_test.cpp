// Forwards that share a backward: each is planned with the others in mind.
#include <gtest/gtest.h>

#include "controller/controller_harness.h"
#include "controller/shared_step.h"

namespace pudica::testing {
namespace {

const ShapeKey kShape{8, 384};

void learn(Harness& harness) {
  for (const std::int64_t length : {96, 160, 224, 320, 384}) {
    harness.step({8, length}, harness.budget_at({8, 512}, 1.5));
  }
}

std::int64_t held_after_forward(const StepCosts& costs, const std::vector<std::uint8_t>& choice) {
  std::int64_t live = 0;
  for (std::size_t i = 0; i < choice.size(); ++i) {
    live += costs.layers[i].gap_net_bytes + costs.layers[i].modes[choice[i]].forward_net_bytes;
  }
  return live;
}

TEST(ControllerShared, TheFirstForwardLeavesRoomForTheSecond) {
  for (const double share : {0.6, 0.9, 1.2, 1.5}) {
    SCOPED_TRACE(share);
    Harness harness{SyntheticSpec{}};
    learn(harness);
    const StepCosts costs = harness.model.true_costs(kShape, false);
    const Bytes budget = harness.budget_at(kShape, share);
    StepContext context = harness.model.context(kShape, budget);
    context.following_forwards = 1;
    const PlanPtr first = harness.controller->begin_step(context).plan;
    const auto first_choice = choice_of(*first, costs);
    EXPECT_EQ(first->modes.size(), costs.layers.size());
    EXPECT_TRUE(first->revocable);
    EXPECT_FALSE(first->predicts_peak());
    EXPECT_NE(first->reason.find("forward 1 of 2"), std::string::npos) << first->reason;

    context.following_forwards = 0;
    context.waiting_forwards = 1;
    context.base_bytes += Bytes(held_after_forward(costs, first_choice));
    const PlanPtr second = harness.controller->begin_step(context).plan;
    const std::int64_t peak = step_peak_bytes(costs, choice_of(*second, costs));
    EXPECT_LE(context.base_bytes + Bytes(peak), budget);
    EXPECT_EQ(harness.controller->snapshot().counters.infeasible_steps, 0);
  }
}

// Forwards that are always two learn their menu in the second, where they are short of room.
TEST(ControllerShared, MenusAreMeasuredThere) {
  Harness harness({.menu_steps = 2});
  learn(harness);
  const Bytes budget = harness.budget_at(kShape, 0.9);
  int measuring = 0;
  for (int step = 0; step < 8; ++step) {
    StepContext context = harness.model.context({8, 300 + 8 * step}, budget);
    context.following_forwards = 1;
    harness.controller->begin_step(context);
    context.following_forwards = 0;
    context.waiting_forwards = 1;
    const StepDecision decision = harness.controller->begin_step(context);
    measuring += decision.record && selective_layers(*decision.plan) > 0 ? 1 : 0;
  }
  EXPECT_GT(measuring, 0);
}

TEST(ControllerShared, WhatEarlierForwardsHoldMakesNoStepInfeasible) {
  Harness harness{SyntheticSpec{}};
  learn(harness);
  const Bytes budget = harness.budget_at(kShape, 0.5);
  StepContext context = harness.model.context(kShape, budget);
  const auto before = harness.controller->estimate(kShape, budget);
  context.waiting_forwards = 1;
  context.base_bytes = budget;
  const PlanPtr plan = harness.controller->begin_step(context).plan;
  EXPECT_TRUE(plan->feasible) << plan->reason;
  EXPECT_EQ(std::ranges::count(plan->modes, Mode::keep()), 0);
  EXPECT_EQ(harness.controller->snapshot().counters.infeasible_steps, 0);
  const auto after = harness.controller->estimate(kShape, budget);
  ASSERT_TRUE(before.has_value() && after.has_value());
  EXPECT_EQ(before->floor_peak_bytes, after->floor_peak_bytes)
      << "what one forward holds for another is no part of what a step begins with";
}

// The graph of a loss that nobody went back through: it goes as the next one takes its variable, or
// is given back before.
TEST(ControllerShared, WhatThoseThatWaitHoldUntilThisOneReturnsIsInNoPlansWay) {
  Harness harness{SyntheticSpec{}};
  learn(harness);
  const Bytes budget = harness.budget_at(kShape, 0.5);
  StepContext context = harness.model.context(kShape, budget);
  context.waiting_forwards = 1;
  const PlanPtr without = harness.controller->begin_step(context).plan;
  context.returning_bytes = budget;
  const PlanPtr with = harness.controller->begin_step(context).plan;
  EXPECT_EQ(with->modes, without->modes);
  EXPECT_EQ(with->joined, without->joined);
  EXPECT_TRUE(with->feasible);
}

TEST(ControllerShared, TwoForwardsNeedWhatOneNeedsOnTopOfTheOther) {
  const SyntheticModel model{SyntheticSpec{}};
  const StepCosts once = model.true_costs(kShape, false);
  const StepCosts twice = repeated(once, 2);
  ASSERT_EQ(twice.layers.size(), 2 * once.layers.size());
  const std::vector<std::uint8_t> keep(once.layers.size(), 0);
  const std::vector<std::uint8_t> keep_both(twice.layers.size(), 0);
  EXPECT_EQ(step_peak_bytes(repeated(once, 1), keep), step_peak_bytes(once, keep));
  EXPECT_EQ(step_peak_bytes(twice, keep_both),
            held_after_forward(once, keep) + step_peak_bytes(once, keep));
  EXPECT_DOUBLE_EQ(twice.step_seconds, 2 * once.step_seconds);
}

}  // namespace
}  // namespace pudica::testing
