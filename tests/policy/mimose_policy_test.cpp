// Mimose against a simulated chain whose bytes are exactly quadratic in the length.
#include <algorithm>
#include <cmath>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "contract/simulated_model.h"
#include "policy/mimose_estimator.h"
#include "policy/policies.h"

namespace pudica {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr std::int64_t kBatch = 4;
constexpr Bytes kBase{1'000'000};
constexpr Bytes kAmple{1'000'000'000'000};

StepContext context_at(std::int64_t length, Bytes budget) {
  StepContext context;
  context.shape = ShapeKey{kBatch, length};
  context.base_bytes = kBase;
  context.budget_bytes = budget;
  return context;
}

// Mimose's estimate of a step's bytes above base with all layers kept: the peak of checkpoint-all
// plus what every layer would keep. (L + 4) boundaries and one rematerialised layer are its peak.
std::int64_t whole_model_bytes(const SimulatedModel& model, std::int64_t length) {
  const std::int64_t saved = model.saved_bytes(ShapeKey{kBatch, length});
  const std::int64_t boundary = 4 * kBatch * length * model.hidden;
  const auto layers = static_cast<std::int64_t>(model.layers);
  return (layers + 4) * boundary + (layers + 1) * saved;
}

// Ten completed warm-up steps at different lengths.
void warm_up(Policy& policy, const SimulatedModel& model) {
  for (std::int64_t step = 0; step < 10; ++step) {
    const StepContext context = context_at(50 + 37 * step, kAmple);
    const StepDecision decision = policy.begin_step(context);
    ASSERT_TRUE(decision.record) << step;
    ASSERT_EQ(decision.plan->default_mode, Mode::full());
    ASSERT_THAT(decision.plan->modes, Each(Mode::full()));
    policy.end_step(model.run(context, decision));
  }
}

std::size_t recomputed(const Plan& plan) {
  return static_cast<std::size_t>(std::ranges::count(plan.modes, Mode::full()));
}

std::unique_ptr<Policy> warm_policy(const SimulatedModel& model, MimosePolicyOptions options = {}) {
  auto policy = make_mimose_policy(options);
  policy->on_structure(model.structure());
  warm_up(*policy, model);
  return policy;
}

TEST(MimosePolicy, RecomputesJustEnoughLayersForTheRoundedLength) {
  const SimulatedModel model{.layers = 12};
  const std::int64_t saved = model.saved_bytes(ShapeKey{kBatch, 385});
  const std::int64_t whole = kBase.count() + whole_model_bytes(model, 385);
  for (const auto rule : {MimoseRule::kPaper, MimoseRule::kCode}) {
    const auto policy = warm_policy(model, {.rule = rule});
    const StepContext context = context_at(381, Bytes(whole - 5 * saved / 2));
    const StepDecision decision = policy->begin_step(context);
    EXPECT_FALSE(decision.record);
    EXPECT_FALSE(decision.plan->revocable);
    EXPECT_TRUE(decision.plan->feasible);
    ASSERT_THAT(decision.plan->modes, SizeIs(12));
    for (std::size_t layer = 0; layer < 12; ++layer) {
      EXPECT_EQ(decision.plan->modes[layer], layer < 3 ? Mode::full() : Mode::keep()) << layer;
    }
    EXPECT_NEAR(static_cast<double>(decision.plan->predicted_peak_bytes.count()),
                static_cast<double>(whole - 3 * saved), 64);
  }
}

TEST(MimosePolicy, HoldsTheBufferBackAsAFractionOfTheBudget) {
  const SimulatedModel model{.layers = 12};
  const auto policy = warm_policy(model, {.buffer_fraction = 0.1});
  const std::int64_t saved = model.saved_bytes(ShapeKey{kBatch, 400});
  const std::int64_t whole = kBase.count() + whole_model_bytes(model, 400);
  // Without a buffer the budget would do for everything.
  const Bytes budget(whole + saved / 2);
  const auto layers = static_cast<std::size_t>(
      std::ceil((static_cast<double>(whole) - 0.9 * static_cast<double>(budget.count())) /
                static_cast<double>(saved)));
  ASSERT_GT(layers, 0U);
  EXPECT_EQ(recomputed(*policy->begin_step(context_at(400, budget)).plan), layers);
  EXPECT_EQ(recomputed(*warm_policy(model)->begin_step(context_at(400, budget)).plan), 0U);
}

TEST(MimosePolicy, KeepsAPlanForALengthRoundedToFiveWhateverChangesAfterwards) {
  const SimulatedModel model;
  const auto policy = warm_policy(model);
  const PlanPtr plan = policy->begin_step(context_at(96, kAmple)).plan;
  EXPECT_EQ(policy->begin_step(context_at(100, Bytes(1))).plan, plan);
  EXPECT_NE(policy->begin_step(context_at(101, kAmple)).plan, plan);
  StepContext other_batch = context_at(97, Bytes(1));
  other_batch.shape = ShapeKey{64, 97, 512};
  EXPECT_EQ(policy->begin_step(other_batch).plan, plan);
}

TEST(MimosePolicy, IsNeverFittedAgain) {
  const SimulatedModel model;
  const auto policy = warm_policy(model);
  const SimulatedModel larger{.hidden = 640};
  for (std::int64_t step = 0; step < 30; ++step) {
    StepDecision decision = policy->begin_step(context_at(100 + 5 * step, kAmple));
    EXPECT_FALSE(decision.record);
    decision.record = true;
    policy->end_step(larger.run(context_at(100 + 5 * step, kAmple), decision));
  }
  const std::int64_t whole = kBase.count() + whole_model_bytes(model, 400);
  EXPECT_EQ(recomputed(*policy->begin_step(context_at(400, Bytes(whole + 64))).plan), 0U);
}

TEST(MimosePolicy, CannotTellAnInfeasibleBudgetButSaysSo) {
  const SimulatedModel model;
  const PlanPtr plan = warm_policy(model)->begin_step(context_at(300, Bytes(1))).plan;
  EXPECT_THAT(plan->modes, AllOf(SizeIs(6), Each(Mode::full())));
  EXPECT_FALSE(plan->feasible);
}

TEST(MimosePolicy, FailedStepsDoNotCountAsWarmUp) {
  const SimulatedModel model;
  const auto policy = make_mimose_policy({});
  policy->on_structure(model.structure());
  for (int step = 0; step < 20; ++step) {
    const StepContext context = context_at(100, kAmple);
    const StepDecision decision = policy->begin_step(context);
    StepOutcome outcome = model.run(context, decision);
    outcome.failed = true;
    outcome.segments.resize(3);
    policy->end_step(outcome);
  }
  warm_up(*policy, model);
  EXPECT_EQ(recomputed(*policy->begin_step(context_at(100, kAmple)).plan), 0U);
}

TEST(MimosePolicy, LearnsTheLayersWithoutBeingToldTheStructure) {
  const SimulatedModel model;
  const auto policy = make_mimose_policy({});
  warm_up(*policy, model);
  EXPECT_THAT(policy->begin_step(context_at(100, kAmple)).plan->modes,
              AllOf(SizeIs(6), Each(Mode::keep())));
}

TEST(MimosePolicy, RecomputesLayersThatTheWarmUpDidNotSee) {
  const auto policy = warm_policy(SimulatedModel{.layers = 4});
  StepStructure grown = SimulatedModel{.layers = 6}.structure();
  grown.layers[1].layer_class = 1;
  grown.class_names.emplace_back("Other");
  policy->on_structure(grown);
  const PlanPtr plan = policy->begin_step(context_at(100, kAmple)).plan;
  EXPECT_THAT(plan->modes, testing::ElementsAre(Mode::keep(), Mode::full(), Mode::keep(),
                                                Mode::keep(), Mode::full(), Mode::full()));
  policy->on_structure(SimulatedModel{.layers = 2}.structure());
  EXPECT_THAT(policy->begin_step(context_at(100, kAmple)).plan->modes,
              testing::ElementsAre(Mode::keep(), Mode::keep()));
}

TEST(MimosePolicy, StartsTheWarmUpAgainWhenTheLayersChangeDuringIt) {
  const auto policy = make_mimose_policy({});
  const SimulatedModel other{.layers = 4, .hidden = 640};
  policy->on_structure(other.structure());
  for (int step = 0; step < 9; ++step) {
    policy->end_step(
        other.run(context_at(100, kAmple), policy->begin_step(context_at(100, kAmple))));
  }
  const SimulatedModel model;
  policy->on_structure(model.structure());
  warm_up(*policy, model);
  const std::int64_t whole = kBase.count() + whole_model_bytes(model, 300);
  EXPECT_EQ(recomputed(*policy->begin_step(context_at(300, Bytes(whole + 64))).plan), 0U);
}

TEST(MimosePolicy, StaysAtCheckpointAllWhereNothingWasMeasured) {
  const SimulatedModel model;
  const auto policy = make_mimose_policy({});
  policy->on_structure(model.structure());
  for (int step = 0; step < 10; ++step) {
    StepDecision decision = policy->begin_step(context_at(100, kAmple));
    decision.record = false;
    policy->end_step(model.run(context_at(100, kAmple), decision));
  }
  const StepDecision decision = policy->begin_step(context_at(100, kAmple));
  EXPECT_FALSE(decision.record);
  EXPECT_THAT(decision.plan->modes, AllOf(SizeIs(6), Each(Mode::full())));
  EXPECT_THAT(decision.plan->reason, HasSubstr("no samples"));
}

// Two distinct lengths are too few for a quadratic. Theirs fits all the same (least norm), and
// meets both points.
TEST(MimosePolicy, FitsWithFewerThanThreeDistinctLengths) {
  const SimulatedModel model{.layers = 4};
  const auto policy = make_mimose_policy({});
  policy->on_structure(model.structure());
  for (int step = 0; step < 10; ++step) {
    const StepContext context = context_at(step % 2 == 0 ? 100 : 200, kAmple);
    policy->end_step(model.run(context, policy->begin_step(context)));
  }
  const std::int64_t whole = kBase.count() + whole_model_bytes(model, 200);
  EXPECT_EQ(recomputed(*policy->begin_step(context_at(200, Bytes(whole - 1000))).plan), 1U);
}

TEST(MimosePolicy, RefusesAWarmUpTooShortForASample) {
  EXPECT_THROW((void)make_mimose_policy({.warmup_steps = 1}), BugError);
}

TEST(MimoseEstimator, SizeIsTheSourceLength) {
  EXPECT_EQ(mimose_size(ShapeKey({8, 128})), 128);
  EXPECT_EQ(mimose_size(ShapeKey({8, 128, 512})), 128);
  EXPECT_EQ(mimose_size(ShapeKey({77})), 77);
  EXPECT_EQ(mimose_size(ShapeKey()), 0);
}

TEST(MimoseEstimator, LeavesTheOptimizersPeakOutWhereSegmentsAccountForIt) {
  StepOutcome outcome;
  outcome.context.base_bytes = Bytes(1000);
  outcome.peak_bytes = Bytes(1000 + 530);
  const auto add = [&outcome](SegmentKind kind, std::int64_t net, std::int64_t peak) {
    SegmentObservation observation;
    observation.key.kind = kind;
    observation.sample.net_bytes = net;
    observation.sample.peak_bytes = peak;
    outcome.segments.push_back(observation);
  };
  add(SegmentKind::kForward, 30, 100);
  add(SegmentKind::kRecompute, 900, 900);
  add(SegmentKind::kBackward, 0, 110);
  add(SegmentKind::kOptimizer, 0, 500);
  EXPECT_EQ(mimose_step_peak_bytes(outcome), 140);
  outcome.peak_bytes = Bytes(1000 + 800);
  EXPECT_EQ(mimose_step_peak_bytes(outcome), 800);
}

// What the head frees of layers is beside its own sample; parts of it are told as gaps of no layer.
TEST(MimoseEstimator, TakesOffWhatTheHeadReleases) {
  StepOutcome outcome;
  const auto add = [&outcome](SegmentKind kind, std::int64_t net, std::int64_t peak) {
    SegmentObservation& observation = outcome.segments.emplace_back();
    observation.key.kind = kind;
    observation.sample.net_bytes = net;
    observation.sample.peak_bytes = peak;
    return &observation;
  };
  add(SegmentKind::kForward, 100, 100)->released_bytes = 40;
  add(SegmentKind::kGap, 50, 50);
  add(SegmentKind::kHead, 10, 20);
  add(SegmentKind::kBackward, -70, 80);
  outcome.peak_bytes = Bytes(150);
  EXPECT_EQ(mimose_step_peak_bytes(outcome), 150) << "100 - 40 + 10 + 80";
  outcome.segments[2].released_bytes = 50;  // some of layers that tell nothing
  outcome.peak_bytes = Bytes(140);
  EXPECT_EQ(mimose_step_peak_bytes(outcome), 140);
}

}  // namespace
}  // namespace pudica
