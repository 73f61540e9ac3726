// Joint segments: where the budget is below the floor of layers recomputed one by one.
#include <gtest/gtest.h>

#include "controller/controller_harness.h"

namespace pudica::testing {
namespace {

const ShapeKey kShape{8, 384};

// Bytes above base that a step of the shape needs with every layer recomputed alone.
std::int64_t checkpoint_all(const SyntheticModel& model, const ShapeKey& shape) {
  const StepCosts costs = model.true_costs(shape, false);
  return step_peak_bytes(costs, std::vector<std::uint8_t>(costs.layers.size(), 1));
}

void learn(Harness& harness) {
  for (const std::int64_t length : {96, 160, 224, 320, 384}) {
    harness.step({8, length}, harness.budget_at({8, 512}, 1.5));
  }
}

SyntheticSpec deep(int layers) {
  SyntheticSpec spec;
  spec.encoder_layers = layers;
  return spec;
}

TEST(ControllerJoints, FloorOf32LayersIsATenthBelowCheckpointingAll) {
  Harness harness(deep(32));
  learn(harness);
  const auto estimate = harness.controller->estimate(kShape, harness.budget_at(kShape, 0.5));
  ASSERT_TRUE(estimate.has_value());
  const Bytes floor = estimate->floor_peak_bytes - estimate->base_bytes;
  const std::int64_t all = checkpoint_all(harness.model, kShape);
  EXPECT_LE(static_cast<double>(floor.count()), 0.9 * static_cast<double>(all));
  EXPECT_EQ(estimate->frontier.front().peak_bytes, estimate->floor_peak_bytes.count());
  EXPECT_TRUE(estimate->plan->joined.empty());
}

TEST(ControllerJoints, AreRunBelowTheFlatFloorToTheByte) {
  for (const auto& spec :
       {deep(32), deep(48), SyntheticSpec{.encoder_layers = 40, .decoder_layers = 8},
        SyntheticSpec{.encoder_layers = 40, .cast_bytes = 4096},
        SyntheticSpec{.encoder_layers = 40, .heads = 1}}) {
    SCOPED_TRACE(std::to_string(spec.encoder_layers) + " and " +
                 std::to_string(spec.decoder_layers));
    Harness harness(spec);
    const auto shape_of = [&spec](std::int64_t length) {
      return spec.decoder_layers > 0 ? ShapeKey{8, length, 96} : ShapeKey{8, length};
    };
    const Bytes ample = harness.budget_at(shape_of(512), 1.5);
    for (const std::int64_t length : {96, 160, 224, 320, 288, 384}) {
      harness.step(shape_of(length), ample);
    }
    const auto estimate = harness.controller->estimate(shape_of(384), ample);
    ASSERT_TRUE(estimate.has_value());
    const Bytes flat = estimate->base_bytes + Bytes(checkpoint_all(harness.model, shape_of(384)));
    ASSERT_LT(estimate->floor_peak_bytes, flat);
    const Bytes budget = estimate->floor_peak_bytes +
                         Bytes((flat - estimate->floor_peak_bytes).count() / 2) +
                         estimate->margin_bytes;
    const HarnessStep step = harness.step(shape_of(384), budget);
    const Plan& plan = *step.decision.plan;
    EXPECT_TRUE(plan.feasible) << plan.reason;
    EXPECT_TRUE(std::ranges::count(plan.joined, 1) > 0) << plan.reason;
    EXPECT_EQ(step.outcome.peak_bytes, plan.predicted_peak_bytes);
    EXPECT_LE(step.outcome.peak_bytes, budget);
    EXPECT_EQ(step.outcome.revocations, 0);
    EXPECT_NE(plan.reason.find("segments"), std::string::npos) << plan.reason;
  }
}

TEST(ControllerJoints, StayExactAtNewShapesUnderATightBudget) {
  Harness harness(deep(32));
  learn(harness);
  const auto longest = harness.controller->estimate({8, 512}, harness.budget_at({8, 512}, 1));
  ASSERT_TRUE(longest.has_value());
  const Bytes budget = longest->floor_peak_bytes + Bytes(longest->base_bytes.count() / 200);
  int joint = 0;
  for (const std::int64_t length : lengths(40, 3)) {
    const HarnessStep step = harness.step({8, length}, budget);
    EXPECT_EQ(step.state, ControllerState::kPlanning);
    EXPECT_EQ(step.outcome.peak_bytes, step.decision.plan->predicted_peak_bytes) << length;
    EXPECT_FALSE(step.outcome.overrun);
    joint += step.decision.plan->joined.empty() ? 0 : 1;
  }
  EXPECT_GT(joint, 0);
  EXPECT_EQ(harness.controller->snapshot().counters.drifts, 0);
}

// While layers are learned as well: a second batch that is far longer than the first.
TEST(ControllerJoints, AreRunWhileLearning) {
  Harness known(deep(32));
  learn(known);
  const auto longest = known.controller->estimate({8, 512}, known.budget_at({8, 512}, 1));
  ASSERT_TRUE(longest.has_value());
  const Bytes flat = longest->base_bytes + Bytes(checkpoint_all(known.model, {8, 512}));
  const Bytes budget =
      longest->floor_peak_bytes + Bytes((flat - longest->floor_peak_bytes).count() / 2);
  Harness harness(deep(32));
  harness.step({8, 80}, budget);
  const HarnessStep second = harness.step({8, 512}, budget);
  EXPECT_EQ(second.state, ControllerState::kLearning);
  EXPECT_TRUE(second.decision.record);
  EXPECT_GT(std::ranges::count(second.decision.plan->joined, 1), 0) << second.decision.plan->reason;
  EXPECT_LE(second.outcome.peak_bytes, budget);
  for (const std::int64_t length : lengths(12, 5)) {
    const HarnessStep step = harness.step({8, length}, budget);
    EXPECT_LE(step.outcome.peak_bytes, budget) << length << ' ' << step.decision.plan->reason;
  }
}

// Segments that need more than is predicted, and cannot be taken back.
TEST(ControllerJoints, ThatWereMeasuredNotToFitAreLayersOnTheirOwnAgain) {
  Harness harness(deep(32));
  learn(harness);
  const auto estimate = harness.controller->estimate(kShape, harness.budget_at(kShape, 0.5));
  ASSERT_TRUE(estimate.has_value());
  const Bytes flat = estimate->base_bytes + Bytes(checkpoint_all(harness.model, kShape));
  const Bytes budget =
      estimate->floor_peak_bytes + Bytes((flat - estimate->floor_peak_bytes).count() / 2);
  int joined = 0;
  for (int i = 0; i < 12; ++i) {
    const StepContext context = harness.model.context(kShape, budget);
    const StepDecision decision = harness.controller->begin_step(context);
    StepOutcome outcome = harness.model.run(context, decision);
    const bool joint = !decision.plan->joined.empty();
    joined += joint ? 1 : 0;
    if (joint) {
      outcome.peak_bytes = Bytes(2 * budget.count());
      outcome.overrun = true;
    }
    harness.controller->end_step(outcome);
  }
  EXPECT_GT(joined, 0);
  EXPECT_LE(joined, 3);
}

TEST(ControllerJoints, BelowTheMenuFloorItIsRunAndTheShortageIsNamed) {
  Harness harness(deep(32));
  learn(harness);
  const auto known = harness.controller->estimate(kShape, harness.budget_at(kShape, 0.5));
  ASSERT_TRUE(known.has_value());
  const Bytes budget = known->floor_peak_bytes - Bytes(1 << 20);
  const HarnessStep step = harness.step(kShape, budget);
  EXPECT_FALSE(step.decision.plan->feasible);
  EXPECT_EQ(step.decision.plan->predicted_peak_bytes, known->floor_peak_bytes);
  EXPECT_EQ(step.outcome.peak_bytes, known->floor_peak_bytes);
  EXPECT_NE(step.decision.plan->reason.find("short by 1.0 MiB"), std::string::npos);
}

TEST(ControllerJoints, NeedOfASegmentsBackwardIsItsFirstLayers) {
  const SyntheticModel model(deep(32));
  const StepCosts costs = model.true_costs(kShape, false);
  ChainProblem problem = to_chain(costs);
  add_joints(costs, &problem);
  PlanRequest request;
  request.context.shape = kShape;
  request.context.budget_bytes = Bytes(problem.offset_bytes + floor_plan(problem.chain).peak_bytes);
  const auto planner = make_planner({});
  const Plan plan = build_plan(*planner, costs, request, {}).plan;
  ASSERT_EQ(plan.joined.size(), 32U);
  for (std::size_t i = 0; i + 1 < plan.joined.size(); ++i) {
    if (plan.joined[i] != 0 || plan.joined[i + 1] == 0) continue;
    std::size_t last = i + 1;
    while (last + 1 < plan.joined.size() && plan.joined[last + 1] != 0) ++last;
    EXPECT_EQ(plan.backward_need_bytes[i], joint_backward_peak_bytes(costs, i, last));
    EXPECT_GT(plan.backward_need_bytes[i], costs.layers[i].modes[1].backward_peak_bytes);
  }
}

// One of parallel experts reads what all of them read: nothing of the one before it goes when it
// has run.
TEST(ControllerJoints, LayersThatReadNoneOfTheOneBeforeAreNotJoined) {
  Harness harness(deep(32));
  learn(harness);
  const auto chain = harness.controller->estimate(kShape, harness.budget_at(kShape, 0.5));
  ASSERT_TRUE(chain.has_value());
  StepStructure structure = harness.model.structure();
  const StepStructure usual = structure;
  for (StepStructure::Layer& layer : structure.layers) layer.apart = true;
  harness.controller->on_structure(structure);
  const auto flat = harness.controller->estimate(kShape, harness.budget_at(kShape, 0.5));
  ASSERT_TRUE(flat.has_value()) << "what was learned still holds";
  EXPECT_GT(flat->floor_peak_bytes, chain->floor_peak_bytes);
  harness.controller->on_structure(usual);
  EXPECT_EQ(harness.controller->estimate(kShape, harness.budget_at(kShape, 0.5))->floor_peak_bytes,
            flat->floor_peak_bytes)
      << "once apart, always";
  const auto restored = make_controller({});
  ASSERT_TRUE(restored->restore(harness.controller->serialize("m"), "m").has_value());
  EXPECT_EQ(restored->estimate(kShape, harness.budget_at(kShape, 0.5))->floor_peak_bytes,
            flat->floor_peak_bytes);
}

}  // namespace
}  // namespace pudica::testing
