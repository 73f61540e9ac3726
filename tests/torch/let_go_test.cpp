// Saved tensors that go while their layer still runs: the forward needs less, and a call that turns
// out to be another one than its class is known for gets them back to the bit.
#include <functional>
#include <stdexcept>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/forwarding_engine.h"
#include "torch/meter.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

// What one call does that those before it did not.
enum class Deviation {
  kNone,
  kOperatorBetween,      // in the middle
  kOperatorAtTheEnd,     // when everything has gone
  kOperatorLeftOut,      // the layer ends early
  kWriteToWhatWasSaved,  // unseen by autograd, by the operator that else writes to something else
  kWriteToTheInput,      // likewise
  kOperatorAndWrite,     // to what was saved, after another operator
  kBackwardInside,       // reads what was saved
  kThrows,               // and the caller goes on with what there was
};

class LettingGo : public ::testing::TestWithParam<Deviation> {
 protected:
  static constexpr std::int64_t kWidth = 64;

  LettingGo() : tapes_(std::make_shared<hooks::ClassTapes>()) {
    hooks::install_engine();
    hooks::cpu_meter();
    at::set_num_threads(1);
    at::manual_seed(3);
    for (int i = 0; i < 4; ++i) {
      weights_.push_back((at::randn({kWidth, kWidth}) / 8.0).set_requires_grad(true));
    }
    input_ = at::randn({256, kWidth});
    ones_ = at::ones({256, kWidth});
  }

  // Saves inputs, outputs, a mask of dropout and what a branch without a future saves; writes to
  // what comes from outside, and reads it then.
  std::vector<at::Tensor> layer(const at::Tensor& x) {
    const auto linear = [&](const at::Tensor& of, int i) {
      return at::linear(of, weights_[static_cast<std::size_t>(i)]);
    };
    at::Tensor scratch = at::zeros_like(x);
    const at::Tensor side = at::gelu(linear(x, 0)).detach();
    calls_.add_(1.0);
    const at::Tensor a = linear(x, 1) * calls_;
    at::Tensor b = at::gelu(a);
    b = at::dropout(b * side, 0.3, /*train=*/true);
    const bool writes_after = deviation_ == Deviation::kOperatorAndWrite;
    if (deviation_ == Deviation::kOperatorBetween) b = b.cos();
    at::Tensor c = at::tanh(linear(b, 2));
    partial_ = c;
    if (deviation_ == Deviation::kThrows) throw std::runtime_error("in the middle");
    if (deviation_ == Deviation::kBackwardInside) {
      const auto inner = torch::autograd::grad({c}, {x}, {ones_}, /*retain_graph=*/true)[0];
      c = c * inner.mean();
    }
    c = linear(at::silu(c), 3);
    if (writes_after) c = c.cos();
    at::Tensor written = scratch;
    if (deviation_ == Deviation::kWriteToWhatWasSaved || writes_after) written = a;
    if (deviation_ == Deviation::kWriteToTheInput) written = x;
    written.variable_data().add_(1.0);
    b = at::Tensor();
    if (deviation_ == Deviation::kOperatorLeftOut) return {c};
    c = at::tanh(c) + scratch * 0.0;
    if (deviation_ == Deviation::kOperatorAtTheEnd) c = c.sin();
    return {c};
  }

  struct Outcome {
    std::vector<at::Tensor> gradients;
    bool taped = false;
    std::int64_t forward_peak_bytes = 0;
  };

  Outcome run(bool framed, std::int32_t menu_step, Deviation deviation) {
    at::manual_seed(9);
    for (at::Tensor weight : weights_) weight.mutable_grad() = at::Tensor();
    const at::Tensor leaf = input_.clone().set_requires_grad(true);
    const at::Tensor x = leaf * 1.0;
    calls_ = at::full({1}, 0.5);
    deviation_ = deviation;
    Outcome outcome;
    at::Tensor out;
    std::shared_ptr<hooks::Frame> frame;
    const std::int64_t before = hooks::cpu_meter().in_use_bytes();
    hooks::cpu_meter().reset_peak();
    try {
      if (framed) {
        frame = hooks::Frame::make({.tapes = tapes_, .menu_step = menu_step});
        out = frame->run_part([this](const auto& in) { return layer(in[0]); }, {x}, {})[0];
      } else {
        out = layer(x)[0];
      }
    } catch (const std::runtime_error&) {
      out = partial_;
    }
    partial_ = at::Tensor();
    if (frame) frame->finish();
    outcome.forward_peak_bytes = hooks::cpu_meter().peak_bytes() - before;
    outcome.taped = frame && frame->taped();
    torch::autograd::backward({out.pow(2).sum()});
    outcome.gradients.push_back(leaf.grad());
    for (const at::Tensor& weight : weights_) {
      outcome.gradients.push_back(weight.grad().defined() ? weight.grad() : at::zeros({1}));
    }
    return outcome;
  }

  std::int32_t collect() {
    for (int i = 0; i < 2; ++i) run(true, hooks::FrameOptions::kNoStep, Deviation::kNone);
    return tapes_->menu() ? static_cast<std::int32_t>(tapes_->menu()->steps.size()) : 0;
  }

  std::shared_ptr<hooks::ClassTapes> tapes_;
  std::vector<at::Tensor> weights_;
  at::Tensor input_;
  at::Tensor ones_;
  at::Tensor partial_;
  at::Tensor calls_;
  Deviation deviation_ = Deviation::kNone;
};

TEST_P(LettingGo, GradientsAreThoseOfThePlainCall) {
  const std::int32_t steps = collect();
  ASSERT_GE(steps, 3);
  const Outcome plain = run(false, 0, GetParam());
  for (std::int32_t step = 0; step < steps; ++step) {
    SCOPED_TRACE(step);
    const Outcome outcome = run(true, step, GetParam());
    expect_equal(plain.gradients, outcome.gradients);
    EXPECT_TRUE(outcome.taped || GetParam() != Deviation::kNone);
  }
  EXPECT_TRUE(run(true, steps - 1, Deviation::kNone).taped) << "the next call is an ordinary one";
}

INSTANTIATE_TEST_SUITE_P(
    All, LettingGo,
    ::testing::Values(Deviation::kNone, Deviation::kOperatorBetween, Deviation::kOperatorAtTheEnd,
                      Deviation::kOperatorLeftOut, Deviation::kWriteToWhatWasSaved,
                      Deviation::kWriteToTheInput, Deviation::kOperatorAndWrite,
                      Deviation::kBackwardInside, Deviation::kThrows));

using LettingGoMemory = LettingGo;

// The deepest step: nothing that it drops is there any more when the layer ends.
TEST_F(LettingGoMemory, TheForwardPeaksLower) {
  const std::int32_t steps = collect();
  ASSERT_GE(steps, 3);
  const std::int64_t kept =
      run(true, hooks::FrameOptions::kNoStep, Deviation::kNone).forward_peak_bytes;
  std::int64_t before = kept;
  for (std::int32_t step = 0; step < steps; ++step) {
    const std::int64_t peak = run(true, step, Deviation::kNone).forward_peak_bytes;
    EXPECT_LE(peak, before) << step;
    before = peak;
  }
  EXPECT_LT(before, kept * 3 / 4);
}

}  // namespace
}  // namespace pudica::testing
