// Which kind of step runs shows in its first layer: the policy is asked once more then.
#include <algorithm>

#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

class ReplanTest : public SessionTest {
 protected:
  ReplanTest() { policy_->may_change = true; }

  static bool has(const StepOutcome& outcome, SegmentKind kind) {
    return std::ranges::any_of(
        outcome.segments, [kind](const SegmentObservation& item) { return item.key.kind == kind; });
  }
};

TEST_F(ReplanTest, TheFirstLayerIsAskedForOnceAndItsPlanIsTheSteps) {
  policy_->plan->default_mode = Mode::keep();
  Plan other;
  other.id = 7;
  other.default_mode = Mode::full();
  policy_->other = StepDecision{std::make_shared<const Plan>(other), false};
  const auto handle = attach_with(1 << 30);
  train_step(*handle);
  const StepReport& report = report_;
  EXPECT_EQ(policy_->first_classes, std::vector<std::uint16_t>{0});
  EXPECT_EQ(report.plan->id, 7U);
  EXPECT_EQ(report.recomputed_layers, 4);
  EXPECT_EQ(policy_->outcomes.back().plan->id, 7U);
}

TEST_F(ReplanTest, WhatComesBeforeTheFirstLayerIsMeasuredWhereTheStepIsRecorded) {
  policy_->other = StepDecision{std::make_shared<const Plan>(), true};
  const auto handle = attach_with(1 << 30);
  train_step(*handle);
  ASSERT_FALSE(policy_->outcomes.back().segments.empty());
  const auto& segments = policy_->outcomes.back().segments;
  const auto gap = std::ranges::find_if(segments, [](const SegmentObservation& item) {
    return item.key.kind == SegmentKind::kGap && item.key.layer_class == 0;
  });
  ASSERT_NE(gap, segments.end());
  EXPECT_GT(gap->sample.net_bytes, 0) << "what the model made in front of its layers";
  EXPECT_TRUE(has(policy_->outcomes.back(), SegmentKind::kBackward));
}

TEST_F(ReplanTest, AStepThatIsNotRecordedAfterAllTeachesNothing) {
  policy_->record = true;
  policy_->other = StepDecision{std::make_shared<const Plan>(), false};
  const auto handle = attach_with(1 << 30);
  train_step(*handle);
  EXPECT_FALSE(report_.recorded);
  EXPECT_TRUE(policy_->outcomes.back().segments.empty());
}

TEST_F(ReplanTest, AStepThatStaysAsDecidedIsRecordedAsDecided) {
  for (const bool record : {true, false}) {
    policy_->record = record;
    const auto handle = attach_with(1 << 30);
    train_step(*handle);
    EXPECT_EQ(report_.recorded, record);
    EXPECT_EQ(policy_->outcomes.back().segments.empty(), !record);
  }
}

TEST_F(ReplanTest, AFailureOfThePolicyLeavesTheStepAsItWas) {
  policy_->fail_in = "replan";
  const auto handle = attach_with(1 << 30);
  const std::vector<at::Tensor> failed = train_step(*handle);
  EXPECT_EQ(handle->failures(), 1);
  const std::vector<at::Tensor> plain = train_step(*handle);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(failed[i], plain[i]));
}

// An exception between two layers, or a loss that nobody goes back from.
TEST_F(ReplanTest, AForwardWithoutABackwardTeachesNothing) {
  policy_->record = true;
  const auto handle = attach_with(1 << 30);
  forward(*handle);
  handle->end_step();
  EXPECT_TRUE(policy_->structures.empty());
  ASSERT_EQ(policy_->outcomes.size(), 1U);
  EXPECT_TRUE(policy_->outcomes[0].failed);
  EXPECT_TRUE(policy_->outcomes[0].segments.empty());
  train_step(*handle);
  EXPECT_FALSE(policy_->outcomes[1].failed);
}

// Contrastive training: its backward is still to come.
TEST_F(ReplanTest, AForwardWhoseBackwardIsToComeIsNoFailure) {
  const auto handle = attach_with(1 << 30);
  const at::Tensor first = forward(*handle);
  const at::Tensor second = forward(*handle);
  ASSERT_EQ(policy_->outcomes.size(), 1U);
  EXPECT_FALSE(policy_->outcomes[0].failed);
}

// What the first layer gives first may be of no use (averaged attention): its other output tells.
TEST_F(ReplanTest, AnOutputThatNobodyUsesIsNoForwardWithoutABackward) {
  policy_->record = true;
  const auto handle = attach_with(1 << 30);
  handle->begin_step(ShapeKey{2, 16});
  at::Tensor loss;
  {
    const at::Tensor x = at::randn({2, 16, 32}).requires_grad_(true) * 1.0;
    const auto two = [](const std::vector<at::Tensor>& in) {
      return std::vector<at::Tensor>{in[0].mean(-1), in[0] * 2.0};
    };
    loss = handle->layer(0, two, {x}, LayerOptions{.layer_class = "two"})[1].sum();
  }
  torch::autograd::backward({loss});
  handle->end_step();
  EXPECT_FALSE(policy_->outcomes.back().failed);
  EXPECT_FALSE(policy_->structures.empty());
}

// A thawed layer, one of another type, one more: a plan for others says nothing of the peak.
TEST_F(ReplanTest, APeakIsToldOfThePlannedLayersOnly) {
  using Classes = std::vector<std::uint16_t>;
  policy_->may_change = false;
  for (const Classes& planned : {Classes{0, 0, 0, 0}, Classes{0, 1, 0, 0, 0}, Classes{1, 1, 1, 1},
                                 Classes{0, 0, 0}, Classes{}}) {
    policy_->plan = Plan();
    policy_->plan->predicted_peak_bytes = Bytes(1000);
    policy_->plan->layer_classes = planned;
    const auto handle = attach_with(1 << 30);
    train_step(*handle);
    const bool others = planned == Classes{1, 1, 1, 1} || planned == Classes{0, 0, 0};
    EXPECT_EQ(report_.other_layers, others) << planned.size();
    EXPECT_EQ(policy_->outcomes.back().other_layers, others);
    EXPECT_EQ(report_.predicted_peak().has_value(), !others);
    train_step(*handle);  // and of each step anew
    EXPECT_EQ(report_.other_layers, others);
  }
}

// Another model's step has begun in between: it keeps what it writes to.
TEST_F(ReplanTest, AStepThatWasCutShortLeavesTheOthersRecorderAlone) {
  const auto cut = attach_with(1 << 30);
  cut->begin_step(ShapeKey{2, 16});
  AttachOptions options;
  const auto other = std::make_shared<ScriptedPolicy>();
  other->record = true;
  options.policy = other;
  options.clock = clock_;
  auto handle = attach(std::move(options));
  ASSERT_TRUE(handle.has_value());
  (*handle)->begin_step(ShapeKey{2, 16});
  at::Tensor loss;
  {
    at::Tensor x = at::randn({2, 16, 32}).requires_grad_(true) * 1.0;
    const auto square = [](const std::vector<at::Tensor>& in) {
      return std::vector<at::Tensor>{in[0] * in[0]};
    };
    cut->layer(0, square, {x}, LayerOptions{.layer_class = "cut"});
    loss = (*handle)->layer(0, square, {x}, LayerOptions{.layer_class = "whole"})[0].sum();
  }
  torch::autograd::backward({loss});
  (*handle)->end_step();
  const auto& segments = other->outcomes.back().segments;
  const auto forward = std::ranges::find_if(segments, [](const SegmentObservation& item) {
    return item.key.kind == SegmentKind::kForward;
  });
  ASSERT_NE(forward, segments.end());
  EXPECT_GT(forward->sample.net_bytes, 0);
}

}  // namespace
}  // namespace pudica::testing
