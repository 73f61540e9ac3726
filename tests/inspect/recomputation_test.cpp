// One definition of what recomputing costs and of what a peak takes of its budget.
#include "inspect/recomputation.h"

#include <memory>

#include <gtest/gtest.h>

namespace pudica {
namespace {

StepStructure two_classes() {
  StepStructure structure;
  for (const int layer_class : {0, 0, 0, 1}) {
    structure.layers.push_back({static_cast<std::uint16_t>(layer_class), 0});
  }
  return structure;
}

StepOutcome outcome_of(std::vector<Mode> modes) {
  auto plan = std::make_shared<Plan>();
  plan->modes = std::move(modes);
  StepOutcome outcome;
  outcome.plan = plan;
  outcome.seconds = 1;
  outcome.forwards = {{0, 0.1}, {1, 0.4}};
  return outcome;
}

const Mode kPart = Mode::selective(0);

TEST(Recomputation, CallsInPartCountAndThoseOffloadedDoNot) {
  EXPECT_EQ(recomputed_calls({Mode::keep(), kPart, Mode::full(), Mode::offload()}, 0), 2);
  EXPECT_EQ(recomputed_calls({Mode::keep(), kPart}, 1), 2);
  EXPECT_EQ(recomputed_calls({Mode::keep(), kPart}, 5), 2) << "a layer counts once";
}

TEST(Recomputation, AStepThatKeepsAllSpendsNothing) {
  EXPECT_EQ(recompute_seconds(outcome_of(std::vector<Mode>(4, Mode::keep())), two_classes()), 0.0);
}

TEST(Recomputation, MeansAreOfEachLayerThatRanTheMode) {
  StepOutcome outcome = outcome_of({kPart, kPart, Mode::full(), Mode::keep()});
  outcome.recomputes = {{0, kPart, 0.02, 0.1}, {0, Mode::full(), 0.11, 0.1}};
  EXPECT_NEAR(recompute_seconds(outcome, two_classes()).value_or(-1), 0.15, 1e-12);
}

TEST(Recomputation, SegmentsAreOfTheirLayers) {
  StepOutcome outcome = outcome_of({kPart, Mode::keep(), Mode::full(), Mode::keep()});
  for (const auto& [layer, seconds] : {std::pair(0, 0.02), std::pair(2, 0.12)}) {
    SegmentObservation item;
    item.key = {SegmentKind::kRecompute, 0, Mode::full(), 0};
    item.layer = layer;
    item.sample.seconds = seconds;
    outcome.segments.push_back(item);
  }
  EXPECT_NEAR(recompute_seconds(outcome, two_classes()).value_or(-1), 0.14, 1e-12);
}

// Layers of a joint segment, and those that were revoked, have no time of their own.
TEST(Recomputation, WhatHasNoTimeOfItsOwnCountsAsItsForward) {
  const StepOutcome joint = outcome_of({Mode::full(), Mode::full(), Mode::keep(), Mode::full()});
  EXPECT_NEAR(recompute_seconds(joint, two_classes()).value_or(-1), 0.6, 1e-12);
  StepOutcome revoked = outcome_of({Mode::full(), Mode::keep(), Mode::keep(), Mode::keep()});
  revoked.revocations = 2;
  EXPECT_NEAR(recompute_seconds(revoked, two_classes()).value_or(-1), 0.1 + 2 * 0.2, 1e-12);
}

TEST(Recomputation, WithoutTimesThePlanTellsAndElseNobody) {
  StepOutcome outcome = outcome_of({kPart, Mode::keep(), Mode::keep(), Mode::keep()});
  outcome.forwards.clear();
  EXPECT_EQ(recompute_seconds(outcome, two_classes()), std::nullopt);
  auto plan = std::make_shared<Plan>(*outcome.plan);
  plan->predicted_extra_seconds = 0.03;
  outcome.plan = plan;
  EXPECT_EQ(recompute_seconds(outcome, two_classes()), 0.03);
  outcome.plan = nullptr;
  EXPECT_EQ(recompute_seconds(outcome, two_classes()), std::nullopt);
}

TEST(Recomputation, ALayerThePlanDoesNotNameRunsItsDefault) {
  Plan plan;
  plan.modes = {kPart};
  plan.teach_first_of_class = true;
  const std::vector<Mode> expected{kPart, Mode::keep(), Mode::keep(), Mode::full()};
  EXPECT_EQ(planned_modes(plan, two_classes()), expected);
}

TEST(Recomputation, SharesAreOfWhatWasMeasured) {
  EXPECT_EQ(recomputed_share(1, 4), 0.25);
  EXPECT_EQ(recomputed_share(5, 4), 1.0);
  EXPECT_EQ(recomputed_share(0, 0), std::nullopt);
}

TEST(Recomputation, APeakIsJudgedByTheBudgetOfItsStep) {
  EXPECT_EQ(budget_used(Bytes(3), Bytes(4)), 0.75);
  EXPECT_EQ(budget_used(Bytes(3), Bytes(0)), std::nullopt) << "not limited";
  EXPECT_EQ(budget_used(Bytes(0), Bytes(4)), std::nullopt) << "nothing was metered";
}

}  // namespace
}  // namespace pudica
