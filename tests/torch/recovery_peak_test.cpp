// What a backward needs while operators run again: no more than running the layer again would.
#include <algorithm>
#include <memory>
#include <vector>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/forwarding_engine.h"
#include "torch/meter.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

// Attention spelled out: between the saved scores lie as many that nobody saves.
class RecoveryPeak : public ::testing::Test {
 protected:
  static constexpr std::int64_t kLength = 256;
  static constexpr std::int64_t kWidth = 32;

  RecoveryPeak() : tapes_(std::make_shared<hooks::ClassTapes>()) {
    hooks::install_engine();
    hooks::cpu_meter();
    at::set_num_threads(1);
    at::manual_seed(3);
    for (int i = 0; i < 4; ++i) {
      weights_.push_back((at::randn({kWidth, kWidth}) / 6.0).set_requires_grad(true));
    }
    input_ = at::randn({kLength, kWidth});
    mask_ = at::zeros({kLength, kLength});
  }

  [[nodiscard]] at::Tensor layer(const at::Tensor& x) const {
    const at::Tensor q = at::linear(x, weights_[0]);
    const at::Tensor k = at::linear(x, weights_[1]);
    const at::Tensor v = at::linear(x, weights_[2]);
    at::Tensor scores = at::matmul(q, k.t());
    scores = scores * 0.18;
    scores = scores + mask_;
    scores = scores - 0.5;
    const at::Tensor probabilities = at::softmax(scores, -1);
    scores = at::Tensor();
    return x + at::tanh(at::linear(at::matmul(probabilities, v), weights_[3]));
  }

  struct Outcome {
    std::vector<at::Tensor> gradients;
    std::int64_t peak_bytes = 0;  // of the backward, above what was live before the layer
  };

  // `store`: kept, or with a step of the menu in part; else run again.
  Outcome run(bool store, std::int32_t menu_step) {
    for (at::Tensor weight : weights_) weight.mutable_grad() = at::zeros_like(weight);
    const at::Tensor leaf = input_.clone().set_requires_grad(true);
    const at::Tensor x = leaf * 1.0;
    const std::int64_t before = hooks::cpu_meter().in_use_bytes();
    const auto frame = hooks::Frame::make(
        {.store = store, .tapes = store ? tapes_ : nullptr, .menu_step = menu_step});
    const auto function = [this](const std::vector<at::Tensor>& in) {
      return std::vector<at::Tensor>{layer(in[0])};
    };
    at::Tensor out = frame->run_part(function, {x}, {})[0];
    frame->finish();
    hooks::cpu_meter().reset_peak();
    torch::autograd::backward({out}, {at::ones_like(out)});
    Outcome outcome;
    outcome.peak_bytes = hooks::cpu_meter().peak_bytes() - before;
    outcome.gradients.push_back(leaf.grad());
    for (const at::Tensor& weight : weights_) outcome.gradients.push_back(weight.grad());
    return outcome;
  }

  std::shared_ptr<hooks::ClassTapes> tapes_;
  std::vector<at::Tensor> weights_;
  at::Tensor input_;
  at::Tensor mask_;
};

TEST_F(RecoveryPeak, IsThatOfTheRerunAtMost) {
  constexpr auto kNoStep = hooks::FrameOptions::kNoStep;
  for (int i = 0; i < 2; ++i) run(true, kNoStep);
  ASSERT_NE(tapes_->menu(), nullptr);
  const auto steps = static_cast<std::int32_t>(tapes_->menu()->steps.size());
  ASSERT_GE(steps, 2);
  const Outcome kept = run(true, kNoStep);
  const Outcome rerun = run(false, kNoStep);
  const std::int64_t most = std::max(kept.peak_bytes, rerun.peak_bytes);
  for (std::int32_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(step);
    const Outcome outcome = run(true, step);
    expect_equal(kept.gradients, outcome.gradients);
    EXPECT_LE(outcome.peak_bytes, most + most / 100);
  }
}

}  // namespace
}  // namespace pudica::testing
