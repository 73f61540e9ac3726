// Forwards that share a backward, each a step of its own.
#include <algorithm>
#include <tuple>

#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

class SharedBackwardTest : public SessionTest {
 protected:
  // Two forwards, of these lengths, and one backward.
  std::vector<at::Tensor> pair_step(Handle& handle, std::int64_t first, std::int64_t second) {
    model_->clear_gradients();
    at::manual_seed(3);
    at::Tensor one = forward(handle, first).mean(1);
    at::Tensor two = forward(handle, second).mean(1);
    at::Tensor loss = one.mul(two).sum();
    one = two = at::Tensor();
    torch::autograd::backward({loss});
    loss = at::Tensor();
    report_ = handle.end_step();
    return gradients();
  }

  // waiting and following of the latest forwards, oldest first
  std::vector<std::pair<int, int>> told(std::size_t count) const {
    std::vector<std::pair<int, int>> out;
    for (std::size_t k = policy_->contexts.size() - count; k < policy_->contexts.size(); ++k) {
      const StepContext& context = policy_->contexts[k];
      out.emplace_back(context.waiting_forwards, context.following_forwards);
    }
    return out;
  }
};

using Told = std::vector<std::pair<int, int>>;

TEST_F(SharedBackwardTest, ThePolicyIsToldWhatWaitsAndWhatFollows) {
  auto handle = attach_with(0);
  pair_step(*handle, 16, 24);
  EXPECT_EQ(told(2), (Told{{0, 0}, {1, 0}}));
  pair_step(*handle, 16, 16);
  EXPECT_EQ(told(2), (Told{{0, 1}, {1, 0}}));
  train_step(*handle);
  EXPECT_EQ(told(1), (Told{{0, 1}})) << "expected of what went before";
  for (int i = 0; i < 5; ++i) train_step(*handle);
  EXPECT_EQ(told(1), (Told{{0, 0}}));
}

TEST_F(SharedBackwardTest, APatternOfBackwardsIsFound) {
  auto handle = attach_with(0);
  for (int i = 0; i < 5; ++i) {
    pair_step(*handle, 16, 16);
    train_step(*handle);
  }
  EXPECT_EQ(told(6), (Told{{0, 1}, {1, 0}, {0, 0}, {0, 1}, {1, 0}, {0, 0}}));
}

TEST_F(SharedBackwardTest, HowManyFollowIsSureOnceTheLatestBackwardsAgree) {
  auto handle = attach_with(0);
  const auto is_sure = [this] { return policy_->contexts.back().forwards_are_sure; };
  for (int i = 0; i < 5; ++i) pair_step(*handle, 16, 16);
  EXPECT_TRUE(is_sure());
  train_step(*handle);
  EXPECT_TRUE(is_sure()) << "that it was no pair shows behind it";
  pair_step(*handle, 16, 16);
  EXPECT_FALSE(is_sure());
}

TEST_F(SharedBackwardTest, OutcomesTellWhichForwardsWaitAndWhatComesBehindThem) {
  auto handle = attach_with(0);
  policy_->record = true;
  pair_step(*handle, 16, 24);
  ASSERT_GE(policy_->outcomes.size(), 2U);
  const StepOutcome& first = policy_->outcomes[policy_->outcomes.size() - 2];
  const StepOutcome& second = policy_->outcomes.back();
  EXPECT_TRUE(first.waits && !second.waits);
  const auto behind = [](const StepOutcome& outcome) {
    return std::ranges::find(outcome.segments, SegmentKey::until_next(), &SegmentObservation::key);
  };
  EXPECT_EQ(behind(second), second.segments.end());
  const auto found = behind(first);
  ASSERT_NE(found, first.segments.end());
  const auto bytes = [](std::int64_t length) { return 2 * length * 32 * std::int64_t{4}; };
  EXPECT_EQ(found->sample.net_bytes, bytes(1) - bytes(16) + bytes(24))
      << "a mean is made, what it is of goes, and the next forward's input comes";
  const std::int64_t left = second.context.base_bytes.count() - first.context.base_bytes.count();
  std::int64_t net = 0;
  for (const SegmentObservation& seen : first.segments) net += seen.sample.net_bytes;
  EXPECT_EQ(net, left) << "nothing of the step is left out";
}

TEST_F(SharedBackwardTest, AnOutputThatIsHeldDoesNotWaitOnceItsBackwardRan) {
  auto handle = attach_with(0);
  for (int i = 0; i < 3; ++i) train_step(*handle, 16, /*holds=*/true);
  EXPECT_EQ(told(3), (Told{{0, 0}, {0, 0}, {0, 0}}));
}

TEST_F(SharedBackwardTest, AForwardThatWasDroppedDoesNotWait) {
  auto handle = attach_with(0);
  forward(*handle);
  train_step(*handle);
  EXPECT_EQ(told(2), (Told{{0, 0}, {0, 0}}));
}

// A loss that is no number: its graph lives until the next one takes its variable.
TEST_F(SharedBackwardTest, AForwardThatNobodyWentBackThroughDoesNotCount) {
  auto handle = attach_with(0);
  for (int i = 0; i < 2; ++i) train_step(*handle);
  at::Tensor loss = forward(*handle).sum();
  loss = forward(*handle).sum();
  EXPECT_EQ(told(1), (Told{{1, 0}})) << "it is there while the next one runs";
  torch::autograd::backward({loss});
  handle->end_step();
  for (int i = 0; i < 2; ++i) train_step(*handle);
  EXPECT_EQ(told(2), (Told{{0, 0}, {0, 0}})) << "its like is not expected";
}

// A burst of them: each waits while the next one runs, and goes then.
TEST_F(SharedBackwardTest, EachOfSeveralThatAreLeftOutWaits) {
  auto handle = attach_with(0);
  for (int i = 0; i < 2; ++i) train_step(*handle);
  at::Tensor loss;
  for (int i = 0; i < 4; ++i) loss = forward(*handle).sum();
  torch::autograd::backward({loss});
  handle->end_step();
  EXPECT_EQ(told(4), (Told{{0, 0}, {1, 0}, {1, 0}, {1, 0}}));
  train_step(*handle);
  EXPECT_EQ(told(1), (Told{{0, 0}}));
}

// A teacher of the same weights: its forward holds as much as any other, while both are there.
TEST_F(SharedBackwardTest, OneThatIsDetachedCountsWhereItRanBesideAnother) {
  auto handle = attach_with(0);
  for (int i = 0; i < 3; ++i) {
    model_->clear_gradients();
    at::Tensor one = forward(*handle).mean(1);
    at::Tensor two = forward(*handle);
    torch::autograd::backward({one.mul(two.detach().mean(1)).sum()});
    handle->end_step();
  }
  EXPECT_EQ(told(2), (Told{{0, 1}, {1, 0}}));
}

// What such a step needs says nothing of its plan; that it is one shows in steps that are not
// recorded as well.
TEST_F(SharedBackwardTest, SeveralBackwardsThroughOneForwardAreToldFromForwardsThatShareOne) {
  auto handle = attach_with(0);
  const auto repeated = [this] { return policy_->outcomes.back().repeated_backward; };
  policy_->plan->predicted_peak_bytes = Bytes(1);
  train_step(*handle);
  EXPECT_TRUE(report_.predicted_peak());
  for (const bool record : {false, true}) {
    policy_->record = record;
    pair_step(*handle, 16, 24);
    EXPECT_FALSE(repeated() || report_.repeated_backward);
    at::Tensor output = forward(*handle);
    torch::autograd::backward({output.sum()}, {}, /*retain_graph=*/true);
    torch::autograd::backward({output.mul(output).sum()});
    output = at::Tensor();
    const StepReport report = handle->end_step();
    EXPECT_TRUE(report.repeated_backward);
    EXPECT_FALSE(report.predicted_peak());
    EXPECT_TRUE(repeated());
    EXPECT_TRUE(policy_->outcomes.back().segments.empty());
    train_step(*handle);
    EXPECT_FALSE(repeated()) << "a step of its own";
    const bool as_planned = policy_->contexts.back().following_forwards == 0;
    EXPECT_EQ(report_.predicted_peak().has_value(), as_planned) << "of two else";
  }
}

// As after an exception in a backward, while the loop still has the loss.
TEST_F(SharedBackwardTest, AForwardWhoseBackwardFailedDoesNotWaitNorCount) {
  auto handle = attach_with(0);
  for (int i = 0; i < 2; ++i) train_step(*handle);
  policy_->record = true;
  at::Tensor output = forward(*handle);
  const auto hook = model_->parameters()[model_->parameters().size() / 2].register_hook(
      [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("injected"); });
  EXPECT_THROW(torch::autograd::backward({output.sum()}), std::runtime_error);
  model_->parameters()[model_->parameters().size() / 2].remove_hook(hook);
  handle->end_step();
  EXPECT_TRUE(policy_->outcomes.back().failed);
  EXPECT_TRUE(policy_->outcomes.back().segments.empty());
  for (int i = 0; i < 2; ++i) train_step(*handle);
  EXPECT_EQ(told(3), (Told{{0, 0}, {0, 0}, {0, 0}}));
  EXPECT_FALSE(policy_->outcomes.back().failed);
}

TEST_F(SharedBackwardTest, GradientsAreThoseWithoutPlansWhateverTheTwoRunAs) {
  auto handle = attach_with(0);
  policy_->plan->revocable = false;
  const auto expected = pair_step(*handle, 16, 24);
  for (const bool record : {false, true}) {
    policy_->record = record;
    policy_->plan = plan_of({Mode::full(), Mode::keep(), Mode::full(), Mode::keep()});
    expect_equal(expected, pair_step(*handle, 16, 24));
    EXPECT_EQ(report_.recomputed_layers, 4) << "of both, in the backward of the second's step";
  }
}

// What a layer needs is the same whether its forward had a backward of its own or shared one.
TEST_F(SharedBackwardTest, TheLastForwardIsMeasuredAsIfItWereAlone) {
  auto handle = attach_with(0);
  policy_->record = true;
  const auto layers_of = [](const StepOutcome& outcome) {
    std::vector<std::tuple<std::string, std::int32_t, std::int64_t, std::int64_t>> out;
    for (const SegmentObservation& seen : outcome.segments) {
      if (seen.layer < 0) continue;
      out.emplace_back(to_string(seen.key), seen.layer, seen.sample.net_bytes,
                       seen.sample.peak_bytes);
    }
    return out;
  };
  for (const Mode mode : {Mode::keep(), Mode::full()}) {
    SCOPED_TRACE(to_string(mode));
    policy_->plan = plan_of({mode, mode, mode, mode});
    train_step(*handle, 24);
    const auto alone = layers_of(policy_->outcomes.back());
    ASSERT_GE(alone.size(), 8U);
    pair_step(*handle, 16, 24);
    const StepOutcome& shared = policy_->outcomes.back();
    EXPECT_EQ(layers_of(shared), alone);
    const auto optimizer =
        std::ranges::find(shared.segments, SegmentKind::kOptimizer,
                          [](const SegmentObservation& seen) { return seen.key.kind; });
    ASSERT_NE(optimizer, shared.segments.end());
    EXPECT_EQ(optimizer->sample.peak_bytes, 0) << "the other forward's backward is no part of it";
  }
}

TEST_F(SharedBackwardTest, WhatAForwardDidBeforeItsStepBeganIsNotTold) {
  auto handle = attach_with(0);
  policy_->record = true;
  const auto tells_of_its_start = [&] {
    const std::vector<SegmentObservation>& seen = policy_->outcomes.back().segments;
    EXPECT_FALSE(seen.empty());
    return std::ranges::any_of(seen, [](const SegmentObservation& one) {
      return one.key.kind == SegmentKind::kGap && one.key.place() == 0;
    });
  };
  for (const bool begins_at_layer : {false, true}) {
    at::Tensor output = forward(*handle, 24, begins_at_layer);
    EXPECT_TRUE(handle->waits());
    EXPECT_FALSE(handle->went_back());
    torch::autograd::backward({output.sum()});
    EXPECT_FALSE(handle->waits());
    EXPECT_TRUE(handle->went_back());
    handle->end_step();
    EXPECT_FALSE(handle->waits());
    EXPECT_FALSE(handle->went_back());
    EXPECT_EQ(tells_of_its_start(), !begins_at_layer);
  }
  forward(*handle);
  EXPECT_FALSE(handle->waits()) << "it was dropped";
}

// What the forward made until then is the step's, where it is known when the forward began.
TEST_F(SharedBackwardTest, AStepThatBeginsLateBeginsWithWhatItsForwardBeganWith) {
  auto handle = attach_with(0);
  const auto base = [&](bool asks) {
    at::Tensor waiting = forward(*handle);
    EXPECT_TRUE(!asks || handle->waits());
    const at::Tensor made = at::zeros({1'000});
    handle->begin_at_layer(ShapeKey{2, 16});
    handle->end_step();
    return policy_->contexts.back().base_bytes.count();
  };
  base(false);  // the first step of all makes what stays
  const std::int64_t of_the_call = base(false);
  EXPECT_EQ(of_the_call - base(true), 4'000);
  EXPECT_EQ(base(false), of_the_call) << "an answer serves one step";
}

// A loss whose gradient runs forwards of its own (GradCache).
TEST_F(SharedBackwardTest, AStepMayBeginInAHookOfABackward) {
  auto handle = attach_with(0);
  policy_->plan = plan_of({Mode::full(), Mode::full(), Mode::keep(), Mode::full()});
  const auto expected = train_step(*handle);
  model_->clear_gradients();
  at::Tensor loss = at::zeros({}).requires_grad_(true);
  loss.register_hook([&](const at::Tensor& /*gradient*/) {
    const at::AutoGradMode with_gradients(true);
    train_step(*handle);
    return at::Tensor();
  });
  torch::autograd::backward({loss * 1.0});
  EXPECT_EQ(report_.recomputed_layers, 3);
  expect_equal(expected, gradients());
}

// What a user's variable holds until the next forward returns is known as that there, too.
TEST_F(SharedBackwardTest, WhatReturnsIsToldOfStepsInAHookAsOfOthers) {
  const auto returning = [this] {
    auto handle = attach_with(0);
    for (int i = 0; i < 4; ++i) train_step(*handle, 16, /*holds=*/true);
    held_ = at::Tensor();
    return policy_->contexts.back().returning_bytes;
  };
  const Bytes outside = returning();
  EXPECT_GT(outside, Bytes(0));
  Bytes inside(0);
  at::Tensor loss = at::zeros({}).requires_grad_(true);
  loss.register_hook([&](const at::Tensor& /*gradient*/) {
    const at::AutoGradMode with_gradients(true);
    inside = returning();
    return at::Tensor();
  });
  torch::autograd::backward({loss * 1.0});
  EXPECT_EQ(inside, outside);
}

// Also where the other forward was not recorded.
TEST_F(SharedBackwardTest, WhatALossOfTheOtherForwardNeedsIsNoPartOfThisOnesBackward) {
  auto handle = attach_with(0);
  const auto epilogue = [this] {
    std::pair<std::int64_t, std::int64_t> bytes{-1, -1};
    for (const SegmentObservation& seen : policy_->outcomes.back().segments) {
      if (seen.key.kind != SegmentKind::kEpilogue) continue;
      bytes = {seen.sample.net_bytes, seen.sample.peak_bytes};
    }
    return bytes;
  };
  const auto expected_of = [&](bool records_first) {
    model_->clear_gradients();
    policy_->record = records_first;
    at::Tensor one = forward(*handle, 16).exp().exp().mean(1);  // its loss saves, and makes, more
    policy_->record = true;
    at::Tensor two = forward(*handle, 24).mean(1);
    at::Tensor loss = one.mul(two).sum();
    one = two = at::Tensor();
    torch::autograd::backward({loss});
    handle->end_step();
    return epilogue();
  };
  policy_->record = true;
  train_step(*handle, 24);
  const auto alone = epilogue();
  EXPECT_GT(alone.second, 0);
  for (const bool records_first : {false, true}) {
    SCOPED_TRACE(records_first);
    EXPECT_EQ(expected_of(records_first), alone);
  }
}

}  // namespace
}  // namespace pudica::testing
