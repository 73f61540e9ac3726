// Promise 1, same numbers: gradients are bit-equal however a layer's activations are held.
#include <tuple>

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/forwarding_engine.h"
#include "torch/meter.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

using Case = std::tuple<Attention, bool, bool>;  // attention, bf16 autocast, pre-norm

class FrameParity : public ::testing::TestWithParam<Case> {
 protected:
  FrameParity() {
    hooks::cpu_meter();
    ToyOptions options;
    std::tie(options.attention, options.autocast_bf16, options.pre_norm) = GetParam();
    model_ = std::make_unique<ToyModel>(options);
    input_ = at::randn({3, 17, options.hidden});
    StepPlan plain;
    run_step(*model_, input_, plain);  // the first step of a process may differ by itself
    reference_ = run_step(*model_, input_, plain);
  }

  void expect_same(std::vector<Treatment> treatments, int backward_passes = 1) {
    StepPlan plain;
    plain.backward_passes = backward_passes;
    const StepResult expected =
        backward_passes == 1 ? reference_ : run_step(*model_, input_, plain);
    StepPlan plan;
    plan.treatments = std::move(treatments);
    plan.backward_passes = backward_passes;
    expect_identical(expected, run_step(*model_, input_, plan));
  }

  std::unique_ptr<ToyModel> model_;
  at::Tensor input_;
  StepResult reference_;
};

TEST_P(FrameParity, KeepRevocably) { expect_same({Treatment::kKeep}); }
TEST_P(FrameParity, Full) { expect_same({Treatment::kFull}); }
TEST_P(FrameParity, RevokedAfterItsForward) { expect_same({Treatment::kRevoked}); }
TEST_P(FrameParity, OffloadedToTheHost) { expect_same({Treatment::kOffload}); }
TEST_P(FrameParity, FramesInsideAnOffloadedFrame) { expect_same({Treatment::kNestedOffload}); }
TEST_P(FrameParity, RevokedWhereTheHostHasNoRoom) { expect_same({Treatment::kOffloadRefused}); }
TEST_P(FrameParity, FramesInsideADroppedFrame) { expect_same({Treatment::kNestedFull}); }
TEST_P(FrameParity, FramesInsideARevocableFrame) { expect_same({Treatment::kNestedKeep}); }
TEST_P(FrameParity, Mixed) {
  expect_same({Treatment::kFull, Treatment::kPlain, Treatment::kRevoked, Treatment::kNestedFull});
  expect_same({Treatment::kOffload, Treatment::kFull, Treatment::kOffload, Treatment::kKeep});
}
TEST_P(FrameParity, RetainedGraphThreePasses) {
  for (const Treatment treatment :
       {Treatment::kKeep, Treatment::kFull, Treatment::kRevoked, Treatment::kOffload}) {
    expect_same({treatment}, 3);
  }
}

TEST_P(FrameParity, JointSegmentOfAllLayers) {
  auto run = [&](bool joint) {
    model_->clear_gradients();
    at::manual_seed(11);
    at::Tensor x = input_.detach().clone().requires_grad_(true) * 1.0;
    auto frame = hooks::Frame::make({.store = false});
    for (const auto& layer : model_->layers) {
      hooks::FrameFunction function = [layer](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{layer->forward(in[0])};
      };
      x = joint ? frame->run_part(function, {x}, {})[0] : function({x})[0];
    }
    frame->finish();
    torch::autograd::backward({x.to(at::kFloat).pow(2).mean()});
    std::vector<at::Tensor> gradients;
    for (const auto& parameter : model_->parameters())
      gradients.push_back(parameter.grad().clone());
    return gradients;
  };
  const auto plain = run(false);
  const auto joint = run(true);
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(at::equal(plain[i], joint[i])) << i;
}

TEST_P(FrameParity, DoubleBackward) {
  auto run = [&](Treatment treatment) {
    at::manual_seed(11);
    const at::Tensor leaf = input_.detach().clone().requires_grad_(true);
    at::Tensor x = leaf * 1.0;
    const auto registry = std::make_shared<hooks::Registry>(hooks::cpu_meter());
    std::vector<std::shared_ptr<hooks::Frame>> frames;
    for (const auto& layer : model_->layers) {
      hooks::FrameFunction function = [layer](const std::vector<at::Tensor>& in) {
        return std::vector<at::Tensor>{layer->feed_forward(in[0])};
      };
      if (treatment == Treatment::kPlain) {
        x = function({x})[0];
        continue;
      }
      hooks::FrameOptions options;
      options.store = treatment != Treatment::kFull;
      if (options.store) options.registry = registry;
      if (treatment == Treatment::kOffload) options.host = hooks::make_simulated_host_tier({});
      auto frame = hooks::Frame::make(options);
      x = frame->run_part(function, {x}, {})[0];
      frame->finish();
      if (treatment == Treatment::kRevoked) registry->revoke(1);
    }
    const auto first = torch::autograd::grad({x.pow(3).sum()}, {leaf}, {}, true, true)[0];
    return torch::autograd::grad({first.pow(2).sum()}, {leaf})[0];
  };
  run(Treatment::kPlain);  // the first of a process may differ by itself
  const at::Tensor expected = run(Treatment::kPlain);
  EXPECT_GT(expected.abs().sum().item<double>(), 0.0);
  for (const Treatment treatment :
       {Treatment::kKeep, Treatment::kFull, Treatment::kRevoked, Treatment::kOffload}) {
    EXPECT_TRUE(at::equal(expected, run(treatment)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, FrameParity,
                         ::testing::Combine(::testing::Values(Attention::kFlash, Attention::kMath),
                                            ::testing::Bool(), ::testing::Bool()),
                         [](const ::testing::TestParamInfo<Case>& tested) {
                           std::string name =
                               std::get<0>(tested.param) == Attention::kFlash ? "Flash" : "Math";
                           name += std::get<1>(tested.param) ? "Bf16" : "Fp32";
                           return name + (std::get<2>(tested.param) ? "PreNorm" : "PostNorm");
                         });

TEST(FrameMemory, FullHoldsLessAndPeaksLowerThanKeep) {
  hooks::cpu_meter();
  ToyModel model(ToyOptions{.layers = 8});
  const at::Tensor input = at::randn({4, 64, 32});
  StepPlan plan;
  run_step(model, input, plan);
  const std::int64_t plain = run_step(model, input, plan).peak_bytes;
  plan.treatments = {Treatment::kFull};
  const std::int64_t full = run_step(model, input, plan).peak_bytes;
  EXPECT_LT(full, plain / 2);
}

TEST(ForwardingEngine, SelfTestPassesAndPlainTrainingIsUntouchedAfterUninstall) {
  hooks::install_engine();
  EXPECT_TRUE(hooks::engine_self_test());
  hooks::uninstall_engine();
  EXPECT_FALSE(hooks::engine_self_test());
  hooks::install_engine();
}

}  // namespace
}  // namespace pudica::testing
