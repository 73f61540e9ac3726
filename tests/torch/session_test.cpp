// The handle: steps, classes, plans applied, segments measured, failures contained.
#include <array>
#include <cstdlib>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "base/log.h"
#include "pudica/torch.h"
#include "torch/meter.h"
#include "torch/session_fixture.h"

namespace pudica::testing {
namespace {

TEST_F(SessionTest, AppliesThePlanAndTheGradientsStayTheSame) {
  auto handle = attach_with(0);
  policy_->plan->revocable = false;
  const auto expected = train_step(*handle);
  EXPECT_EQ(report_.recomputed_layers, 0);
  policy_->plan = plan_of({Mode::full(), Mode::keep(), Mode::full(), Mode::keep()});
  expect_equal(expected, train_step(*handle));
  EXPECT_EQ(report_.recomputed_layers, 2);
  EXPECT_EQ(report_.layer_calls, 4);
  policy_->plan = plan_of({Mode::full(), Mode::full(), Mode::full(), Mode::full()});
  policy_->plan->joined = {0, 1, 0, 1};
  expect_equal(expected, train_step(*handle));
  EXPECT_EQ(report_.recomputed_layers, 2) << "two joint segments, recomputed once each";
}

class SessionApartTest : public SessionTest {
 protected:
  // A step whose loss `forward` makes of the input; its gradients.
  std::vector<at::Tensor> step_of(const std::function<at::Tensor(const at::Tensor&)>& forward) {
    model_->clear_gradients();
    at::manual_seed(3);
    const at::Tensor input = at::randn({2, 16, 32}).requires_grad_(true) * 1.0;
    handle_->begin_step(ShapeKey{2, 16});
    torch::autograd::backward({forward(input)});
    report_ = handle_->end_step();
    return gradients();
  }
  at::Tensor layer(std::size_t index, const at::Tensor& input, const LayerOptions& options = {}) {
    const auto run = [layer = model_->layers[index]](const std::vector<at::Tensor>& inputs) {
      return std::vector<at::Tensor>{layer->forward(inputs.front())};
    };
    return handle_->layer(static_cast<std::int64_t>(index), run, {input}, options).front();
  }
  [[nodiscard]] std::vector<bool> told_apart() const {
    std::vector<bool> apart;
    for (const auto& layer : policy_->structures.back().layers) apart.push_back(layer.apart);
    return apart;
  }
  void plan_one_segment() {
    policy_->plan = plan_of({Mode::full(), Mode::full(), Mode::full(), Mode::full()});
    policy_->plan->joined = {0, 1, 1, 1};
  }

  std::unique_ptr<Handle> handle_ = attach_with(0);
};

// Parallel layers of one input: a plan that has them as one is not theirs.
TEST_F(SessionApartTest, LayersThatReadNoneOfTheOneBeforeAreToldAndNotJoined) {
  const auto parallel = [&](const at::Tensor& input) {
    at::Tensor sum = at::zeros({1});
    at::Tensor x = input;
    for (std::size_t i = 0; i < model_->layers.size(); ++i) {
      x = layer(i, i < 3 ? input : x);  // the last one reads the third
      sum = sum + x.mean();
    }
    return sum;
  };
  const auto expected = step_of(parallel);
  ASSERT_FALSE(policy_->structures.empty());
  EXPECT_EQ(told_apart(), (std::vector<bool>{false, true, true, false}));
  plan_one_segment();
  expect_equal(expected, step_of(parallel));
  EXPECT_EQ(report_.recomputed_layers, 3) << "the third and the last are one";
}

TEST_F(SessionApartTest, LayersThatAreSaidToBeApartAreToldAndNotJoined) {
  const auto chain = [&](at::Tensor x) {
    for (std::size_t i = 0; i < model_->layers.size(); ++i) {
      LayerOptions options;
      options.apart = i == 2;
      x = layer(i, x, options);
    }
    return x.mean();
  };
  const auto expected = step_of(chain);
  ASSERT_FALSE(policy_->structures.empty());
  EXPECT_EQ(told_apart(), (std::vector<bool>{false, false, true, false}));
  plan_one_segment();
  expect_equal(expected, step_of(chain));
  EXPECT_EQ(report_.recomputed_layers, 2) << "two and two";
}

TEST_F(SessionTest, TellsWhatRunningLayersTookInStepsThatAreNotRecorded) {
  auto handle = attach_with(0);
  policy_->plan = plan_of({Mode::full(), Mode::keep(), Mode::full(), Mode::keep()});
  policy_->plan->revocable = false;
  for (int i = 0; i < 3; ++i) train_step(*handle);
  const auto& times = policy_->outcomes.back().recomputes;
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].mode, Mode::full());
  EXPECT_GT(times[0].seconds, 0);
  EXPECT_LT(times[0].seconds, policy_->outcomes.back().seconds);
  EXPECT_GT(times[0].forward_seconds, 0);
  EXPECT_LT(times[0].forward_seconds, policy_->outcomes.back().seconds);
  ASSERT_EQ(policy_->outcomes.back().forwards.size(), 1U);
  EXPECT_GT(policy_->outcomes.back().forwards[0].seconds, 0);
  policy_->plan->joined = {0, 0, 0, 0};
  policy_->plan->modes = {Mode::full(), Mode::full(), Mode::keep(), Mode::keep()};
  policy_->plan->joined[1] = 1;
  train_step(*handle);
  EXPECT_TRUE(policy_->outcomes.back().recomputes.empty()) << "of two layers as one";
  policy_->record = true;
  train_step(*handle);
  EXPECT_TRUE(policy_->outcomes.back().recomputes.empty()) << "told by its segments";
  EXPECT_EQ(policy_->outcomes.back().forwards.size(), 1U);
}

TEST_F(SessionTest, LearnsTheStructureOnceAndNamesTheLastOfItsClass) {
  auto handle = attach_with(0);
  train_step(*handle);
  train_step(*handle);
  ASSERT_EQ(policy_->structures.size(), 1U);
  const auto& layers = policy_->structures[0].layers;
  ASSERT_EQ(layers.size(), 4U);
  EXPECT_EQ(layers[0].layer_class, layers[3].layer_class);
  EXPECT_EQ(layers[0].variant, 0);
  EXPECT_EQ(layers[3].variant, SegmentKey::kLastOfClass);
}

TEST_F(SessionTest, TeachesTheFirstLayerOfAClassWhileThePlanIsUnknown) {
  auto handle = attach_with(0);
  policy_->plan->teach_first_of_class = true;
  train_step(*handle);
  EXPECT_EQ(report_.recomputed_layers, 1);
}

// The measured segments, put together by the formula, give the measured peak to the byte.
TEST_F(SessionTest, SegmentsAddUpToTheMeasuredPeak) {
  auto handle = attach_with(0);
  train_step(*handle);
  policy_->record = true;
  policy_->plan = plan_of({Mode::full(), Mode::keep(), Mode::keep(), Mode::keep()});
  for (const std::int64_t length : {16, 48}) {
    train_step(*handle, length);
    const StepOutcome& outcome = policy_->outcomes.back();
    // gap, 4 forward, head, 4 backward, 1 recompute, epilogue, optimizer
    ASSERT_EQ(outcome.segments.size(), 13U);
    std::int64_t live = outcome.context.base_bytes.count();
    std::int64_t peak = live;
    for (const SegmentObservation& segment : outcome.segments) {
      if (segment.key.kind == SegmentKind::kRecompute) continue;  // inside its backward
      peak = std::max(peak, live + segment.sample.peak_bytes);
      live += segment.sample.net_bytes;
    }
    EXPECT_EQ(peak, outcome.peak_bytes.count()) << "length " << length;
  }
}

// What is held of the step before adds to the peak until the forward returns, and is no part of a
// segment; where that is shows in the segment behind the last layer.
TEST_F(SessionTest, WhatReturnsIsCountedApart) {
  auto handle = attach_with(0);
  policy_->record = true;
  policy_->plan = plan_of({Mode::keep(), Mode::keep(), Mode::keep(), Mode::keep()});
  for (const std::int64_t length : {80, 16, 16, 48}) {
    const std::int64_t before = held_.defined() ? static_cast<std::int64_t>(held_.nbytes()) : 0;
    train_step(*handle, length, /*holds=*/true);
    const StepOutcome& outcome = policy_->outcomes.back();
    if (policy_->outcomes.size() < 3) continue;  // not before it was seen to return
    EXPECT_EQ(outcome.context.returning_bytes, Bytes(before));
    const std::int64_t base = outcome.context.base_bytes.count();
    std::int64_t live = base + before;
    std::int64_t peak = live;
    bool returned = false;
    for (const SegmentObservation& segment : outcome.segments) {
      peak = std::max(peak, live + segment.sample.peak_bytes);
      if (segment.key == SegmentKey::until_return(4)) {
        EXPECT_GT(segment.sample.peak_bytes, 0);
        live -= before;
        returned = true;
        continue;  // the head begins where this did
      }
      live += segment.sample.net_bytes;
    }
    EXPECT_TRUE(returned);
    EXPECT_EQ(peak, outcome.peak_bytes.count()) << "length " << length;
  }
}

TEST_F(SessionTest, AccumulationIsSeenFromTheGradients) {
  auto handle = attach_with(0);
  train_step(*handle);
  EXPECT_FALSE(policy_->contexts.back().gradients_present);
  handle->begin_step(ShapeKey{2, 16});
  EXPECT_TRUE(policy_->contexts.back().gradients_present);
  handle->end_step();
}

TEST_F(SessionTest, HardBudgetIsHeldByRevoking) {
  auto handle = attach_with(0);
  policy_->plan->revocable = false;
  train_step(*handle, 64);
  const auto expected = train_step(*handle, 64);
  const std::int64_t keep_peak = report_.peak_bytes.count();
  const std::int64_t base = report_.base_bytes.count();
  handle.reset();
  policy_->plan->revocable = true;
  const std::int64_t budget = base + (keep_peak - base) * 6 / 10;
  handle = attach_with(budget, Enforcement::kHard);
  expect_equal(expected, train_step(*handle, 64));
  EXPECT_GE(report_.revocations, 1);
  EXPECT_LE(report_.peak_bytes.count(), budget);
  EXPECT_FALSE(report_.overrun);
}

TEST_F(SessionTest, ARefusalThatALibrarySwallowsIsTold) {
  static int told;
  told = 0;
  set_log_sink([](LogLevel /*level*/, std::string_view line) {
    told += line.find("another way") != std::string_view::npos ? 1 : 0;
  });
  const auto step = [&](Handle& handle, bool swallows) {
    handle.begin_step(ShapeKey{4});
    const at::Tensor y = handle.layer(
        0,
        [swallows](const at::Tensor& x) {
          try {
            if (swallows) at::empty({1 << 24});
          } catch (const c10::Error&) {
          }
          return x.exp();
        },
        at::ones({4}).requires_grad_(true));
    torch::autograd::backward({y.sum()});
    handle.end_step();
  };
  const std::int64_t budget = bytes_in_use(c10::Device("cpu")).count() + (1 << 20);
  auto handle = attach_with(budget, Enforcement::kHard);
  step(*handle, false);
  EXPECT_EQ(told, 0);
  for (int i = 0; i < 2; ++i) step(*handle, true);
  EXPECT_EQ(told, 1) << "once";
  handle = attach_with(budget, Enforcement::kSoft);
  step(*handle, true);
  EXPECT_EQ(told, 1) << "nothing was refused";
  set_log_sink(nullptr);
}

// What returns is not taken for something that a revocation could give back.
TEST_F(SessionTest, ABudgetIsHeldWithOutputsHeldToo) {
  auto handle = attach_with(0);
  policy_->plan->revocable = false;
  std::int64_t keep_peak = 0;
  std::vector<at::Tensor> expected;
  for (int step = 0; step < 3; ++step) {
    expected = train_step(*handle, 64, /*holds=*/true);
    keep_peak = report_.peak_bytes.count();
  }
  const std::int64_t base = report_.base_bytes.count();
  handle.reset();
  policy_->plan->revocable = true;
  const std::int64_t budget = base + (keep_peak - base) * 8 / 10;
  handle = attach_with(budget, Enforcement::kHard);
  for (int step = 0; step < 4; ++step) {
    expect_equal(expected, train_step(*handle, 64, /*holds=*/true));
    EXPECT_GE(report_.revocations, 1) << step;
    EXPECT_LE(report_.peak_bytes.count(), budget) << step;
    if (step < 2) continue;
    EXPECT_EQ(policy_->contexts.back().returning_bytes,
              Bytes(static_cast<std::int64_t>(held_.nbytes())));
  }
}

TEST_F(SessionTest, EveryFailureOfThePolicyIsContained) {
  auto reference = attach_with(0);
  const auto expected = train_step(*reference);
  reference.reset();
  for (const char* where : {"begin_step", "on_structure", "end_step"}) {
    policy_ = std::make_shared<ScriptedPolicy>();
    policy_->fail_in = where;
    auto handle = attach_with(0);
    for (int step = 0; step < 3; ++step) expect_equal(expected, train_step(*handle));
    EXPECT_EQ(handle->failures(), 1) << where;
  }
}

TEST_F(SessionTest, APolicyWithoutAPlanRunsPlainly) {
  auto handle = attach_with(0);
  const auto expected = train_step(*handle);
  policy_->plan.reset();
  expect_equal(expected, train_step(*handle));
  EXPECT_EQ(report_.recomputed_layers, 0);
}

TEST_F(SessionTest, ALayerThatDoesNotReproduceItselfIsQuarantined) {
  auto handle = attach_with(0);
  policy_->plan->default_mode = Mode::full();
  const at::Tensor leaf = at::randn({4, 4}).requires_grad_(true);
  int calls = 0;
  const auto step = [&] {
    handle->begin_step(ShapeKey{4, 4});
    const at::Tensor y = handle->layer(
        0,
        [&calls](const at::Tensor& x) {
          ++calls;
          return calls == 2 ? x.exp() : x.exp().sin();
        },
        leaf * 1.0);
    torch::autograd::backward({y.sum()});
    handle->end_step();
  };
  EXPECT_THROW(step(), c10::Error);
  EXPECT_NO_THROW(step());
  EXPECT_EQ(calls, 3) << "kept: not run again in backward";
}

TEST_F(SessionTest, StepsThatThrowLeaveTheNextOneClean) {
  auto handle = attach_with(0);
  policy_->record = true;
  const auto expected = train_step(*handle);
  handle->begin_step(ShapeKey{1, 1});
  EXPECT_THROW(handle->layer(
                   0, [](const at::Tensor&) -> at::Tensor { throw std::runtime_error("mine"); },
                   at::ones({1}).requires_grad_(true)),
               std::runtime_error);
  handle->end_step();
  EXPECT_TRUE(policy_->outcomes.back().failed);
  EXPECT_TRUE(policy_->outcomes.back().segments.empty());
  expect_equal(expected, train_step(*handle));
  EXPECT_FALSE(policy_->outcomes.back().failed);
}

TEST_F(SessionTest, GradientsOffAndNestedLayersJustRun) {
  auto handle = attach_with(0);
  policy_->plan->default_mode = Mode::full();
  handle->begin_step(ShapeKey{2, 2});
  {
    const at::NoGradGuard no_grad;
    handle->layer(
        0, [](const at::Tensor& x) { return x.exp(); }, at::ones({2}));
  }
  const at::Tensor y = handle->layer(
      0,
      [&](const at::Tensor& x) {
        return handle->layer(
                   0, [](const at::Tensor& z) { return z.exp(); }, x) *
               2.0;
      },
      at::ones({2}).requires_grad_(true));
  torch::autograd::backward({y.sum()});
  const StepReport report = handle->end_step();
  EXPECT_EQ(report.layer_calls, 1);
  EXPECT_EQ(report.recomputed_layers, 1);
}

TEST_F(SessionTest, DetachLeavesNoCapAndFramesStayUsable) {
  auto handle = attach_with(1, Enforcement::kHard);
  handle->detach();
  handle = attach_with(0);
  policy_->plan->default_mode = Mode::full();
  const at::Tensor leaf = at::randn({4}).requires_grad_(true);
  handle->begin_step(ShapeKey{4});
  const at::Tensor y = handle->layer(
      0, [](const at::Tensor& x) { return x.exp().sin(); }, leaf);
  handle.reset();
  EXPECT_NO_THROW(torch::autograd::backward({y.sum()}));
}

TEST_F(SessionTest, AStepThatAnotherModelsStepCutsShortTeachesNothing) {
  auto first = attach_with(0);
  AttachOptions options;
  const auto other_policy = std::make_shared<ScriptedPolicy>();
  other_policy->record = true;
  options.policy = other_policy;
  options.budget_bytes = Bytes(std::int64_t{1} << 40U);
  options.clock = clock_;
  auto second = *attach(std::move(options));
  policy_->record = true;
  const auto expected = train_step(*first);
  ASSERT_FALSE(policy_->outcomes.back().failed);
  ASSERT_FALSE(policy_->outcomes.back().segments.empty());
  // The second model's step begins inside the first one's.
  first->begin_step(ShapeKey{2, 16});
  train_step(*second);
  EXPECT_FALSE(other_policy->outcomes.back().failed);
  EXPECT_FALSE(other_policy->outcomes.back().segments.empty());
  EXPECT_EQ(report_.budget_bytes, Bytes(std::int64_t{1} << 40U));
  first->end_step();
  EXPECT_TRUE(policy_->outcomes.back().failed);
  EXPECT_TRUE(policy_->outcomes.back().segments.empty());
  // And each of them goes on.
  second.reset();
  expect_equal(expected, train_step(*first));
  EXPECT_FALSE(policy_->outcomes.back().failed);
}

TEST_F(SessionTest, BytesTheMeterNeverSawCountWhileTheyLive) {
  constexpr std::int64_t kBytes = 4096;
  static std::array<float, kBytes / sizeof(float)> outside{};
  const auto make = [] { return at::from_blob(outside.data(), {kBytes / 4}); };
  at::Tensor state = make();
  auto handle = attach_with(0);
  const Bytes before = bytes_in_use(c10::Device(c10::DeviceType::CPU));
  handle->count_residents({state, state, at::ones({8})});
  const auto now = [] { return bytes_in_use(c10::Device(c10::DeviceType::CPU)); };
  EXPECT_EQ(now() - before, Bytes(kBytes)) << "each block once; what the meter made not again";
  state = at::Tensor();
  train_step(*handle);
  handle->begin_step(ShapeKey{1});
  state = make();
  handle->count_residents({state});
  const Bytes counted = now();
  handle.reset();
  EXPECT_EQ(counted - now(), Bytes(kBytes)) << "nothing stays counted when the handle goes";
}

TEST_F(SessionTest, BadOptionsAreRefusedByName) {
  AttachOptions bad;
  bad.budget_bytes = Bytes(-5);
  EXPECT_EQ(attach(std::move(bad)).error().code, ErrorCode::kInvalidArgument);
  AttachOptions meta;
  meta.device = c10::Device(c10::DeviceType::Meta);
  EXPECT_EQ(attach(std::move(meta)).error().code, ErrorCode::kInvalidArgument);
}

TEST_F(SessionTest, DisabledByTheEnvironmentNothingHappens) {
  setenv("PUDICA_DISABLE", "1", 1);
  policy_->plan->default_mode = Mode::full();
  auto handle = attach_with(1, Enforcement::kHard);
  train_step(*handle);
  unsetenv("PUDICA_DISABLE");
  EXPECT_TRUE(policy_->contexts.empty());
  EXPECT_EQ(report_.recomputed_layers, 0);
}

}  // namespace
}  // namespace pudica::testing
