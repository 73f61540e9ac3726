// Where a layer's backward begins, when it has several outputs.
#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include <ATen/Parallel.h>

#include "pudica/controller.h"
#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

class BorderTest : public SessionTest {
 protected:
  // `call` makes the outputs of layer i from its inputs; the step's loss is of all last outputs.
  template <typename Call>
  StepOutcome record_step(Handle& handle, std::int64_t length, const Call& call) {
    policy_->record = true;
    model_->clear_gradients();
    at::manual_seed(3);
    const at::Tensor input = at::randn({2, length, 32}).requires_grad_(true);
    handle.begin_step(ShapeKey{2, length});
    Tensors outputs{input * 1.0, input * 2.0};
    for (std::size_t i = 0; i < model_->layers.size(); ++i) {
      const LayerFunction function = [i, call](const Tensors& in) { return call(i, in); };
      outputs = handle.layer(static_cast<std::int64_t>(i), function, std::move(outputs), {});
    }
    at::Tensor loss = outputs[0].pow(2).mean() + outputs[1].pow(2).mean();
    outputs.clear();
    torch::autograd::backward({loss});
    loss = at::Tensor();
    handle.end_step();
    return policy_->outcomes.back();
  }

  // What each layer leaves when its backward is done.
  static std::map<std::int32_t, std::int64_t> left_by(const StepOutcome& outcome) {
    std::map<std::int32_t, std::int64_t> left;
    for (const SegmentObservation& seen : outcome.segments) {
      const SegmentKind kind = seen.key.kind;
      if (kind != SegmentKind::kForward && kind != SegmentKind::kBackward) continue;
      left[seen.layer] += seen.sample.net_bytes;
    }
    return left;
  }

  static std::ptrdiff_t backwards(const StepOutcome& outcome) {
    return std::ranges::count(outcome.segments, SegmentKind::kBackward,
                              [](const SegmentObservation& seen) { return seen.key.kind; });
  }
};

// The first output is made before the second: its gradient is asked for when most of the layer's
// backward is over.
TEST_F(BorderTest, ABackwardBeginsWithWhicheverOutputComesFirst) {
  auto handle = attach_with(0);
  const auto two_outputs = [this](std::size_t i, const Tensors& in) {
    at::Tensor early = in[0] * in[1];
    return Tensors{early, model_->layers[i]->forward(in[1] * 2.0)};
  };
  record_step(*handle, 16, two_outputs);
  policy_->plan = plan_of({Mode::keep(), Mode::keep(), Mode::keep(), Mode::keep()});
  const auto kept = left_by(record_step(*handle, 24, two_outputs));
  ASSERT_EQ(kept.size(), 4U);
  EXPECT_EQ(kept.at(1), kept.at(2));
  for (const std::size_t other : {1U, 2U}) {
    SCOPED_TRACE(other);
    std::vector<Mode> modes(4, Mode::keep());
    modes[other] = Mode::full();
    policy_->plan = plan_of(modes);
    const StepOutcome outcome = record_step(*handle, 24, two_outputs);
    EXPECT_EQ(backwards(outcome), 4);
    EXPECT_EQ(left_by(outcome), kept);
  }
}

// As position biases do: made by the first layer, handed on by the others.
TEST_F(BorderTest, WhatALayerHandsOnIsNoOutputOfIts) {
  auto handle = attach_with(0);
  const auto hands_on = [this](std::size_t i, const Tensors& in) {
    const at::Tensor bias = i == 0 ? in[1].tanh() : in[1];
    return Tensors{bias, model_->layers[i]->forward(in[0] + bias)};
  };
  const auto swapped = [hands_on](std::size_t i, const Tensors& in) {
    return i == 0 ? hands_on(i, in) : hands_on(i, {in[1], in[0]});
  };
  record_step(*handle, 16, swapped);
  const std::vector<Mode> keep(4, Mode::keep());
  policy_->plan = plan_of(keep);
  const StepOutcome outcome = record_step(*handle, 24, swapped);
  EXPECT_EQ(backwards(outcome), 4);
  const auto left = left_by(outcome);
  EXPECT_EQ(left.at(1), left.at(2));
  EXPECT_EQ(left.at(2), left.at(3));
}

// An output that a kept layer saves as well (an activation's) goes with its own backward, and with
// the next layer's where it is run again: what a layer leaves is to be the same either way.
TEST_F(BorderTest, WhoHoldsAnOutputChangesNoLayer) {
  auto handle = attach_with(0);
  const auto activation_last = [this](std::size_t i, const Tensors& in) {
    return Tensors{in[0] * in[1], model_->layers[i]->forward(in[1]).relu()};
  };
  record_step(*handle, 16, activation_last);
  policy_->plan = plan_of({Mode::keep(), Mode::keep(), Mode::keep(), Mode::keep()});
  const StepOutcome plain = record_step(*handle, 24, activation_last);
  const auto kept = left_by(plain);
  ASSERT_EQ(kept.size(), 4U);
  const auto head_net = [](const StepOutcome& outcome) {
    const auto head = std::ranges::find(outcome.segments, SegmentKind::kHead,
                                        [](const auto& seen) { return seen.key.kind; });
    return head->sample.net_bytes;
  };
  for (std::size_t full = 0; full < 4; ++full) {
    SCOPED_TRACE(full);
    std::vector<Mode> modes(4, Mode::keep());
    modes[full] = Mode::full();
    policy_->plan = plan_of(modes);
    const StepOutcome outcome = record_step(*handle, 24, activation_last);
    EXPECT_EQ(left_by(outcome), kept);
    EXPECT_EQ(head_net(outcome), head_net(plain));
    std::int64_t live = outcome.context.base_bytes.count();
    std::int64_t peak = live;
    for (const SegmentObservation& seen : outcome.segments) {
      if (seen.key.kind == SegmentKind::kRecompute) continue;  // inside its backward
      peak = std::max(peak, live + seen.sample.peak_bytes);
      live += seen.sample.net_bytes;
    }
    EXPECT_EQ(peak, outcome.peak_bytes.count());
  }
}

// Layers that end in an activation, as those of convolutional networks do.
class ActivationStackTest : public ::testing::Test {
 protected:
  ActivationStackTest() {
    install_meter();
    at::set_num_threads(1);  // workers of one operator allocate in any order
    for (std::size_t i = 0; i < kLayers; ++i) {
      weights_.push_back((at::randn({32, 96}) / 8).requires_grad_(true));
      weights_.push_back((at::randn({96, 32}) / 8).requires_grad_(true));
    }
  }

  std::unique_ptr<Handle> attach_with(std::int64_t budget_bytes) {
    AttachOptions options;
    options.policy = make_controller({});
    options.parameters = weights_;
    options.budget_bytes = Bytes(budget_bytes);
    options.clock = operator_clock();
    return std::move(*attach(std::move(options)));
  }

  StepReport step(Handle& handle, std::int64_t length) {
    for (at::Tensor& weight : weights_) weight.mutable_grad() = at::Tensor();
    at::Tensor x = at::randn({2, length, 32}).requires_grad_(true);
    handle.begin_step(ShapeKey{2, length});
    x = x * 1.0;
    for (std::size_t i = 0; i < kLayers; ++i) {
      const at::Tensor up = weights_[2 * i];
      const at::Tensor down = weights_[2 * i + 1];
      x = handle.layer(
          static_cast<std::int64_t>(i),
          [up, down](const at::Tensor& in) {
            return at::relu(at::matmul(at::tanh(at::matmul(in, up)), down));
          },
          x);
    }
    const at::Tensor loss = x.pow(2).mean();
    x = at::Tensor();
    torch::autograd::backward({loss});
    return handle.end_step();
  }

  static constexpr std::size_t kLayers = 6;
  std::vector<at::Tensor> weights_;
};

TEST_F(ActivationStackTest, IsPredictedToTheByte) {
  const std::int64_t all = step(*attach_with(0), 200).peak_bytes.count();
  for (const std::int64_t percent : {70, 80}) {
    SCOPED_TRACE(percent);
    const auto handle = attach_with(all * percent / 100);
    int predicted = 0;
    for (int i = 0; i < 60; ++i) {
      const StepReport report = step(*handle, 40 + 53 * i % 161);
      EXPECT_FALSE(report.overrun) << i;
      if (i < 20 || !report.plan || !report.plan->predicts_peak()) continue;
      if (!report.plan->revocable) continue;
      ++predicted;
      EXPECT_EQ(report.peak_bytes, report.plan->predicted_peak_bytes) << i << report.plan->reason;
    }
    EXPECT_GE(predicted, 10);
  }
}

}  // namespace
}  // namespace pudica::testing
