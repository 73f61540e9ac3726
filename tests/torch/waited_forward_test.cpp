// Forwards of different layers before one backward: what it shows of those that waited for it.
#include <algorithm>
#include <map>
#include <tuple>

#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

using Samples = std::map<SegmentKey, std::vector<std::vector<std::int64_t>>>;

class WaitedForwardTest : public SessionTest {
 protected:
  WaitedForwardTest() { policy_->record = true; }

  // One forward through the toy's layers, as layers of that class.
  at::Tensor forward_as(Handle& handle, const std::string& layer_class, std::int64_t length) {
    at::Tensor input = at::randn({2, length, 32});
    handle.begin_step({2, length});
    at::Tensor x = input.requires_grad_(true) * 1.0;
    LayerOptions options;
    options.layer_class = layer_class;
    for (std::size_t i = 0; i < model_->layers.size(); ++i) {
      const auto layer = model_->layers[i];
      x = handle.layer(
          static_cast<std::int64_t>(i),
          [layer](const std::vector<at::Tensor>& in) {
            return std::vector<at::Tensor>{layer->forward(in[0])};
          },
          {x}, options)[0];
    }
    return x;
  }

  // Two towers, the second of which may be as the first, and one backward.
  const StepOutcome& pair_step(Handle& handle, const std::string& second = "other",
                               bool detaches = false) {
    model_->clear_gradients();
    at::Tensor one = forward_as(handle, "one", 16).mean(1);
    at::Tensor two = forward_as(handle, second, 24).mean(1);
    if (detaches) one = one.detach();
    at::Tensor loss = one.mul(two).sum();
    one = two = at::Tensor();
    torch::autograd::backward({loss});
    loss = at::Tensor();
    handle.end_step();
    return policy_->outcomes.back();
  }

  const StepOutcome& alone(Handle& handle) {
    model_->clear_gradients();
    at::Tensor loss = forward_as(handle, "one", 16).mean(1).sum();
    torch::autograd::backward({loss});
    loss = at::Tensor();
    handle.end_step();
    return policy_->outcomes.back();
  }

  static Samples backwards_of(const std::vector<SegmentObservation>& segments) {
    Samples out;
    for (const SegmentObservation& item : segments) {
      if (item.key.kind != SegmentKind::kBackward) continue;
      out[item.key].push_back({item.sample.net_bytes, item.sample.peak_bytes});
    }
    return out;
  }
};

// The parameters are the same layers', so the tower that comes second in the backward finds its
// gradients: as they would be if it accumulated.
TEST_F(WaitedForwardTest, ItsLayersAreMeasuredAsIfItHadBeenAlone) {
  auto handle = attach_with(0);
  alone(*handle);
  model_->clear_gradients();
  policy_->plan = Plan{};
  const StepOutcome accumulated = [&] {
    at::Tensor loss = forward_as(*handle, "one", 16).mean(1).sum();
    torch::autograd::backward({loss});
    handle->end_step();
    loss = forward_as(*handle, "one", 16).mean(1).sum();
    torch::autograd::backward({loss});
    loss = at::Tensor();
    handle->end_step();
    return policy_->outcomes.back();
  }();
  ASSERT_TRUE(accumulated.context.gradients_present);
  const StepOutcome& outcome = pair_step(*handle);
  ASSERT_EQ(outcome.waited.size(), 1U);
  const WaitedForward& waited = outcome.waited[0];
  EXPECT_EQ(waited.context.shape, (ShapeKey{2, 16}));
  EXPECT_EQ(waited.context.step + 1, outcome.context.step);
  const Samples expected = backwards_of(accumulated.segments);
  Samples seen;
  for (const auto& [key, samples] : backwards_of(waited.segments)) {
    SegmentKey accumulating = key;
    accumulating.variant |= SegmentKey::kGradientsPresent;
    seen[accumulating] = samples;
  }
  EXPECT_EQ(seen, expected);
  const auto count = [&](SegmentKind kind) {
    return std::ranges::count_if(
        waited.segments, [kind](const SegmentObservation& item) { return item.key.kind == kind; });
  };
  EXPECT_EQ(count(SegmentKind::kEpilogue), 1) << "of what stands before its first layer";
  EXPECT_EQ(count(SegmentKind::kHead) + count(SegmentKind::kOptimizer), 0);
}

TEST_F(WaitedForwardTest, LayersThatRunAgainInALaterForwardFindTheirGradients) {
  auto handle = attach_with(0);
  const auto accumulates = [](const StepOutcome& outcome) {
    std::vector<bool> out;
    for (const SegmentObservation& item : outcome.waited.at(0).segments) {
      if (item.key.kind == SegmentKind::kBackward) out.push_back(item.key.accumulates());
    }
    return out;
  };
  EXPECT_EQ(accumulates(pair_step(*handle)), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(accumulates(pair_step(*handle, "one")), (std::vector<bool>{true, true, true, true}));
}

TEST_F(WaitedForwardTest, WhatNobodyWentBackThroughShowsNothing) {
  auto handle = attach_with(0);
  EXPECT_TRUE(pair_step(*handle, "other", /*detaches=*/true).waited.empty());
  EXPECT_EQ(pair_step(*handle).waited.size(), 1U);
}

TEST_F(WaitedForwardTest, BothStepsHaveToBeRecorded) {
  auto handle = attach_with(0);
  policy_->record = false;
  EXPECT_TRUE(pair_step(*handle).waited.empty());
  model_->clear_gradients();
  for (const bool first : {true, false}) {
    policy_->record = first;
    at::Tensor one = forward_as(*handle, "one", 16).mean(1);
    policy_->record = !first;
    at::Tensor two = forward_as(*handle, "other", 24).mean(1);
    torch::autograd::backward({one.mul(two).sum()});
    handle->end_step();
    EXPECT_TRUE(policy_->outcomes.back().waited.empty()) << first;
  }
}

// Of three the oldest first.
TEST_F(WaitedForwardTest, EachOfSeveralIsTold) {
  auto handle = attach_with(0);
  at::Tensor one = forward_as(*handle, "one", 16).mean(1);
  at::Tensor two = forward_as(*handle, "two", 20).mean(1);
  at::Tensor three = forward_as(*handle, "three", 24).mean(1);
  torch::autograd::backward({one.mul(two).mul(three).sum()});
  handle->end_step();
  const auto& waited = policy_->outcomes.back().waited;
  ASSERT_EQ(waited.size(), 2U);
  EXPECT_EQ(waited[0].context.shape, (ShapeKey{2, 16}));
  EXPECT_EQ(waited[1].context.shape, (ShapeKey{2, 20}));
  for (const WaitedForward& forward : waited) {
    EXPECT_EQ(backwards_of(forward.segments).size(), 2U) << "the last layer and the others";
  }
}

// Recomputed layers, in the waiting forward: their recompute is told, and is not the last one's.
TEST_F(WaitedForwardTest, RecomputesAreToldOfTheForwardThatTheyAreOf) {
  auto handle = attach_with(0);
  policy_->plan = Plan{.default_mode = Mode::full()};
  model_->clear_gradients();
  at::Tensor one = forward_as(*handle, "one", 16).mean(1);
  policy_->plan = Plan{};
  at::Tensor two = forward_as(*handle, "other", 24).mean(1);
  torch::autograd::backward({one.mul(two).sum()});
  handle->end_step();
  const StepOutcome& outcome = policy_->outcomes.back();
  const auto recomputes = [](const std::vector<SegmentObservation>& segments) {
    return std::ranges::count_if(segments, [](const SegmentObservation& item) {
      return item.key.kind == SegmentKind::kRecompute;
    });
  };
  ASSERT_EQ(outcome.waited.size(), 1U);
  EXPECT_EQ(recomputes(outcome.segments), 0);
  EXPECT_EQ(recomputes(outcome.waited[0].segments), 4);
}

// A locked tower behind the one that is trained: it has no backward of its own.
TEST_F(WaitedForwardTest, ItIsToldWhereTheLastForwardIsFrozen) {
  auto handle = attach_with(0);
  model_->clear_gradients();
  at::Tensor one = forward_as(*handle, "one", 16).mean(1);
  const auto train = [this](bool wanted) {
    for (at::Tensor parameter : model_->parameters()) parameter.requires_grad_(wanted);
  };
  train(false);
  handle->begin_step({2, 24});
  at::Tensor two = at::randn({2, 24, 32});
  LayerOptions options;
  options.layer_class = "frozen";
  for (const auto& layer : model_->layers) {
    two = handle->layer(
        0,
        [layer](const std::vector<at::Tensor>& in) {
          return std::vector<at::Tensor>{layer->forward(in[0])};
        },
        {two}, options)[0];
  }
  train(true);
  ASSERT_FALSE(two.requires_grad());
  torch::autograd::backward({one.mul(two.mean(1)).sum()});
  handle->end_step();
  const StepOutcome& outcome = policy_->outcomes.back();
  EXPECT_FALSE(outcome.repeated_backward);
  ASSERT_EQ(outcome.waited.size(), 1U);
  EXPECT_EQ(backwards_of(outcome.waited[0].segments).size(), 2U);
}

// Two losses: the first forward's backward is over before the last one's begins.
TEST_F(WaitedForwardTest, ABackwardOfItsOwnIsNoneOfTheLastOnes) {
  auto handle = attach_with(0);
  model_->clear_gradients();
  at::Tensor one = forward_as(*handle, "one", 16).mean(1);
  at::Tensor two = forward_as(*handle, "other", 24).mean(1);
  torch::autograd::backward({one.sum()});
  torch::autograd::backward({two.sum()});
  handle->end_step();
  const StepOutcome& outcome = policy_->outcomes.back();
  EXPECT_FALSE(outcome.repeated_backward);
  EXPECT_TRUE(outcome.waited.empty());
  EXPECT_EQ(backwards_of(outcome.segments).size(), 2U);
}

// Its layers could not be given back while the other one runs, of which no plan knew.
TEST_F(WaitedForwardTest, AForwardThatWaitedUnforeseenIsKeptRevocablyTheNextTime) {
  policy_->record = false;
  policy_->plan->revocable = false;
  auto handle = attach_with(std::int64_t{1} << 40);
  const auto ran_free = [this, &handle](bool alone) {
    model_->clear_gradients();
    at::Tensor one = forward_as(*handle, "one", 16).mean(1);
    at::Tensor other = at::ones({2, 32});
    if (!alone) {
      handle->begin_step({2, 24});
      other = handle->layer(
          0, [](const std::vector<at::Tensor>& in) { return std::vector<at::Tensor>{in[0] * 2}; },
          {other}, {.layer_class = "frozen"})[0];
    }
    const bool was_free = alone ? false : policy_->outcomes.back().ran_free;
    torch::autograd::backward({one.mul(other).sum()});
    handle->end_step();
    return alone ? policy_->outcomes.back().ran_free : was_free;
  };
  EXPECT_TRUE(ran_free(/*alone=*/true));
  EXPECT_TRUE(ran_free(/*alone=*/false));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(ran_free(/*alone=*/false)) << i;
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(ran_free(/*alone=*/true)) << i;
  EXPECT_TRUE(ran_free(/*alone=*/true));
}

// What was taken back of it tells nothing of its mode.
TEST_F(WaitedForwardTest, RevokedLayersAreLeftOut) {
  auto handle = attach_with(0);
  const std::int64_t need = pair_step(*handle).peak_bytes.count();
  handle->set_budget(Bytes(need * 6 / 10));
  const StepOutcome& outcome = pair_step(*handle);
  ASSERT_GT(outcome.revocations, 0);
  ASSERT_EQ(outcome.waited.size(), 1U);
  const Samples all = backwards_of(outcome.waited[0].segments);
  std::size_t told = 0;
  for (const auto& [key, samples] : all) told += samples.size();
  EXPECT_LT(told, 4U);
}

}  // namespace
}  // namespace pudica::testing
