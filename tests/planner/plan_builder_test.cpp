#include "pudica/plan_builder.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pudica {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

// `count` equal layers: kept 64 MiB, recomputed 8 MiB for a millisecond.
StepCosts equal_layers(int count) {
  StepCosts costs;
  for (int i = 0; i < count; ++i) {
    LayerCosts layer;
    layer.modes = {{Mode::keep(), 64 * kMiB, 70 * kMiB, 0, 16 * kMiB, 0},
                   {Mode::full(), 8 * kMiB, 70 * kMiB, 0, 72 * kMiB, 1e-3}};
    costs.layers.push_back(layer);
  }
  return costs;
}

// What a plan needs by these costs.
LikelyPeak as_reckoned(const StepCosts& costs) {
  return
      [costs](const BuiltPlan& one) { return step_peak_bytes(costs, one.choice, one.plan.joined); };
}

// Layers that may be one with those before them.
StepCosts chained_layers(int count, std::int64_t output_bytes) {
  StepCosts costs = equal_layers(count);
  for (std::size_t i = 0; i < costs.layers.size(); ++i) {
    costs.layers[i].follows_previous = i > 0;
    costs.layers[i].output_bytes = output_bytes;
    costs.layers[i].modes[1].forward_net_bytes = output_bytes;
  }
  return costs;
}

PlanRequest request_for(std::int64_t budget_mib) {
  PlanRequest request;
  request.context.shape = ShapeKey{8, 128};
  request.context.base_bytes = Bytes(100 * kMiB);
  request.context.budget_bytes = Bytes(budget_mib * kMiB);
  return request;
}

TEST(PlanBuilder, KeepsAllWhenItFits) {
  const auto planner = make_planner({});
  const BuiltPlan built = build_plan(*planner, equal_layers(8), request_for(2000), {});
  EXPECT_EQ(built.plan.modes, std::vector<Mode>(8, Mode::keep()));
  EXPECT_EQ(built.plan.predicted_peak_bytes, Bytes((100 + 8 * 64 + 16) * kMiB));
  EXPECT_FALSE(built.plan.revocable);
  EXPECT_TRUE(built.plan.feasible);
  EXPECT_EQ(built.plan.reason.find("everything fits"), 0u) << built.plan.reason;
}

TEST(PlanBuilder, StaysRevocableNearTheBudget) {
  const auto planner = make_planner({});
  PlanRequest request = request_for(640);
  EXPECT_TRUE(build_plan(*planner, equal_layers(8), request, {}).plan.revocable);
  request.ample_fraction = 0.99;
  EXPECT_FALSE(build_plan(*planner, equal_layers(8), request, {}).plan.revocable);
}

TEST(PlanBuilder, RecomputesAsFewLayersAsFit) {
  const auto planner = make_planner({});
  PlanRequest request = request_for(400);
  request.margin_bytes = Bytes(kMiB);
  const StepCosts costs = equal_layers(8);
  const BuiltPlan built = build_plan(*planner, costs, request, {});
  EXPECT_LE(built.plan.predicted_peak_bytes, Bytes(399 * kMiB));
  EXPECT_EQ(built.plan.predicted_peak_bytes,
            Bytes(100 * kMiB + step_peak_bytes(costs, built.choice)));
  EXPECT_EQ(std::ranges::count(built.plan.modes, Mode::full()), 5);
  EXPECT_NEAR(built.plan.predicted_extra_seconds, 5e-3, 1e-9);
  EXPECT_LT(built.plan.certified_gap_seconds, 1e-3);
  EXPECT_EQ(built.plan.reason,
            "5 of 8 layers recomputed: keeping all needs 628.0 MiB, budget 400.0 MiB less margin "
            "1.0 MiB");
}

TEST(PlanBuilder, SaysWhatIsShortWhenNothingFits) {
  const auto planner = make_planner({});
  const BuiltPlan built = build_plan(*planner, equal_layers(8), request_for(200), {});
  EXPECT_FALSE(built.plan.feasible);
  EXPECT_EQ(built.plan.reason,
            "infeasible: the least peak of any plan is 236.0 MiB, budget 200.0 MiB, short by "
            "36.0 MiB");
  EXPECT_EQ(built.plan.predicted_peak_bytes, Bytes(236 * kMiB));
}

TEST(PlanBuilder, AFloorThatFitsOnlyWithoutTheMarginIsFeasible) {
  const auto planner = make_planner({});
  PlanRequest request = request_for(240);
  request.margin_bytes = Bytes(10 * kMiB);
  const BuiltPlan built = build_plan(*planner, equal_layers(8), request, {});
  EXPECT_TRUE(built.plan.feasible);
  EXPECT_NE(built.plan.reason.find("only without the margin"), std::string::npos);
}

TEST(PlanBuilder, TheReasonNamesWhatTheAllocatorTakesOfTheBudget) {
  const auto planner = make_planner({});
  PlanRequest request = request_for(400);
  request.context.allocator_bytes = Bytes(50 * kMiB);
  const auto& fitting = build_plan(*planner, equal_layers(8), request, {}).plan;
  EXPECT_THAT(fitting.reason,
              ::testing::HasSubstr("budget 450.0 MiB less 50.0 MiB for the allocator"));
  request.context.budget_bytes = Bytes(150 * kMiB);
  const auto& short_of = build_plan(*planner, equal_layers(8), request, {}).plan;
  EXPECT_FALSE(short_of.feasible);
  EXPECT_THAT(short_of.reason,
              ::testing::HasSubstr("budget 200.0 MiB less 50.0 MiB for the allocator, short by"));
}

// Where plans were passed over for what they were measured to need, the margin is not what lacks.
TEST(PlanBuilder, AFloorThatFitsIsSaidToFitWhateverWasPassedOver) {
  const auto planner = make_planner({});
  PlanRequest request = request_for(400);
  request.margin_bytes = Bytes(10 * kMiB);
  request.most_bytes = 100 * kMiB;  // less than any plan needs
  const BuiltPlan built = build_plan(*planner, equal_layers(8), request, {});
  EXPECT_TRUE(built.plan.feasible);
  EXPECT_FALSE(built.layers_fit);
  EXPECT_EQ(built.plan.reason,
            "7 of 8 layers recomputed: the least peak, 236.0 MiB, fits the budget 400.0 MiB"
            " less margin 10.0 MiB");
}

// An optimizer's step that is over the budget whatever the layers do: they keep to it, and nothing
// is recomputed beyond that.
TEST(PlanBuilder, LayersKeepToABudgetThatAnOptimizerBreaks) {
  const auto planner = make_planner({});
  StepCosts costs = equal_layers(8);
  const BuiltPlan without = build_plan(*planner, costs, request_for(400), {});
  costs.optimizer_peak_bytes = 900 * kMiB;
  BuiltPlan built = build_plan(*planner, costs, request_for(400), {});
  EXPECT_FALSE(built.plan.feasible);
  EXPECT_EQ(built.plan.modes, without.plan.modes);
  EXPECT_EQ(built.plan.predicted_peak_bytes, Bytes(1000 * kMiB));
  EXPECT_EQ(built.plan.reason.find("infeasible: the least peak of any plan is 1000.0 MiB"), 0U);
  tighten(built, costs, costs, request_for(400), as_reckoned(costs));
  EXPECT_EQ(built.plan.modes, without.plan.modes);
}

TEST(PlanBuilder, KeepsAllBelowAnOptimizersPeakWhereThatFits) {
  const auto planner = make_planner({});
  StepCosts costs = equal_layers(8);
  costs.optimizer_peak_bytes = 900 * kMiB;
  const BuiltPlan built = build_plan(*planner, costs, request_for(700), {});
  EXPECT_FALSE(built.plan.feasible);
  EXPECT_EQ(built.plan.modes, std::vector<Mode>(8, Mode::keep()));
}

// The model may be wrong about segments and right about layers on their own.
TEST(PlanBuilder, SegmentsThatWereMeasuredNotToFitAreLayersOnTheirOwnAgain) {
  const auto planner = make_planner({});
  const StepCosts costs = chained_layers(8, 40 * kMiB);
  const PlanRequest request = request_for(150);
  BuiltPlan built = build_plan(*planner, costs, request, {});
  tighten(built, costs, costs, request, as_reckoned(costs));
  ASSERT_FALSE(built.plan.joined.empty());
  tighten(built, costs, costs, request, [&](const BuiltPlan& one) {
    return one.plan.joined.empty() ? as_reckoned(costs)(one) : 900 * kMiB;
  });
  EXPECT_TRUE(built.plan.joined.empty());
  EXPECT_EQ(built.plan.modes, std::vector<Mode>(8, Mode::full()));
}

TEST(PlanBuilder, WhatDoesNotFitIsTightenedBelowItsPeakAsWell) {
  const auto planner = make_planner({});
  StepCosts costs = equal_layers(8);
  costs.head_peak_bytes = 900 * kMiB;
  const PlanRequest request = request_for(400);
  BuiltPlan built = build_plan(*planner, costs, request, {});
  const BuiltPlan least = built;
  tighten(built, costs, costs, request, as_reckoned(costs));
  EXPECT_EQ(built.plan.modes, std::vector<Mode>(8, Mode::full()));
  EXPECT_EQ(built.choice, std::vector<std::uint8_t>(8, 1));
  EXPECT_EQ(built.plan.predicted_peak_bytes, least.plan.predicted_peak_bytes);
  EXPECT_EQ(built.plan.reason, least.plan.reason);
  EXPECT_FALSE(built.plan.feasible);
}

// Joined all layers leave a little less before a head whose peak may be wrong, and need all of
// themselves behind it.
TEST(PlanBuilder, LayersAreNotJoinedForALittleOfAHeadThatFitsInNoPlan) {
  const auto planner = make_planner({});
  StepCosts costs = chained_layers(8, 2 * kMiB);
  costs.head_peak_bytes = costs.until_release_peak_bytes = 900 * kMiB;
  const PlanRequest request = request_for(400);
  BuiltPlan built = build_plan(*planner, costs, request, {});
  ASSERT_FALSE(built.plan.joined.empty()) << "the least peak";
  tighten(built, costs, costs, request, as_reckoned(costs));
  EXPECT_TRUE(built.plan.joined.empty());
  EXPECT_EQ(built.plan.modes, std::vector<Mode>(8, Mode::full()));
  // One that fits is taken whatever its layers need.
  built = build_plan(*planner, costs, request, {});
  tighten(built, costs, costs, request,
          [](const BuiltPlan& one) { return one.plan.joined.empty() ? 301 * kMiB : 299 * kMiB; });
  EXPECT_FALSE(built.plan.joined.empty());
}

TEST(PlanBuilder, WithoutABudgetEverythingIsKept) {
  const auto planner = make_planner({});
  const BuiltPlan built = build_plan(*planner, equal_layers(3), request_for(0), {});
  EXPECT_EQ(built.plan.modes, std::vector<Mode>(3, Mode::keep()));
  EXPECT_TRUE(built.plan.feasible);
  EXPECT_FALSE(built.plan.revocable);
}

}  // namespace
}  // namespace pudica
