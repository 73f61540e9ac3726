// Saved tensors that go while their layer still runs: the forward needs less, and a call that turns
// out to be another one than its class is known for gets them back to the bit.
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/forwarding_engine.h"
#include "torch/meter.h"
#include "torch/recorder.h"
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
    std::vector<std::int64_t> forward_events;  // as recorded
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
    hooks::Recorder recorder(4096);
    hooks::cpu_meter().set_recorder(&recorder);
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
    hooks::cpu_meter().set_recorder(nullptr);
    recorder.mark(hooks::MarkKind::kForwardEnd, 0);
    const auto events = recorder.events(0, recorder.marks().back().event);
    outcome.forward_events.assign(events.begin(), events.end());
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

// Logs of calls are matched event by event.
TEST_F(LettingGoMemory, ACollectedCallIsRecordedLikeAnyOther) {
  const Outcome collected = run(true, hooks::FrameOptions::kNoStep, Deviation::kNone);
  collect();
  ASSERT_NE(tapes_->menu(), nullptr);
  const Outcome kept = run(true, hooks::FrameOptions::kNoStep, Deviation::kNone);
  EXPECT_THAT(collected.forward_events, ::testing::ElementsAreArray(kept.forward_events));
}

// Layers that differ in their third call and later from those that were collected, or that do what
// nobody sees: `odd` is set for those.
struct Layer {
  using Function = std::function<at::Tensor(const at::Tensor& x, bool odd)>;

  // Fails unless gradients are those of the plain call at every step of the menu.
  static void expect_plain_gradients(const at::Tensor& weight, const Function& function,
                                     const std::function<void()>& reset) {
    const auto tapes = std::make_shared<hooks::ClassTapes>();
    const at::Tensor input = at::randn({256, weight.size(0)});
    const auto run = [&](bool framed, std::int32_t step, bool odd) {
      at::manual_seed(5);
      reset();
      at::Tensor(weight).mutable_grad() = at::Tensor();
      const at::Tensor leaf = input.clone().set_requires_grad(true);
      const at::Tensor x = leaf * 1.0;
      at::Tensor out;
      std::shared_ptr<hooks::Frame> frame;
      if (framed) {
        frame = hooks::Frame::make({.tapes = tapes, .menu_step = step});
        out = frame->run_part(
            [&](const auto& in) { return std::vector<at::Tensor>{function(in[0], odd)}; }, {x},
            {})[0];
        frame->finish();
      } else {
        out = function(x, odd);
      }
      torch::autograd::backward({out.pow(2).sum()});
      return std::vector<at::Tensor>{leaf.grad(), weight.grad()};
    };
    for (int i = 0; i < 2; ++i) run(true, hooks::FrameOptions::kNoStep, false);
    ASSERT_NE(tapes->menu(), nullptr);
    const auto steps = static_cast<std::int32_t>(tapes->menu()->steps.size());
    ASSERT_GT(steps, 0);
    for (const bool odd : {false, true}) {
      const auto plain = run(false, 0, odd);
      for (std::int32_t step = 0; step < steps; ++step) {
        SCOPED_TRACE(std::to_string(step) + (odd ? " odd" : ""));
        expect_equal(plain, run(true, step, odd));
      }
    }
  }
};

class LettingGoTraps : public ::testing::Test {
 protected:
  LettingGoTraps() {
    hooks::install_engine();
    hooks::cpu_meter();
    at::set_num_threads(1);
    at::manual_seed(3);
    weight_ = (at::randn({64, 64}) / 8.0).set_requires_grad(true);
  }

  at::Tensor weight_;
};

// `t` could be made again from what is saved after it, and was when the menu was searched for; as
// it goes, only from the mean that the layer has written by the time it comes back.
TEST_F(LettingGoTraps, WhatIsSavedLaterDoesNotProveWhatGoesEarlier) {
  at::Tensor mean;
  at::Tensor variance;
  const auto reset = [&] {
    mean = at::zeros({64});
    variance = at::ones({64});
  };
  Layer::expect_plain_gradients(
      weight_,
      [&](const at::Tensor& x, bool odd) {
        const at::Tensor y = at::linear(x, weight_) - mean;
        at::Tensor t = at::exp(y);
        const at::Tensor u = at::tanh(t + 1.0);
        t = at::Tensor();
        at::Tensor z = at::batch_norm(y, {}, {}, mean, variance, true, 0.5, 1e-5, false);
        if (odd) z = z.cos();
        return at::linear(u + z, weight_);
      },
      reset);
}

// A kernel outside of torch, between the operator that makes a tensor and the one that saves it.
TEST_F(LettingGoTraps, WritesThatNobodySees) {
  Layer::expect_plain_gradients(
      weight_,
      [&](const at::Tensor& x, bool odd) {
        const at::Tensor y = at::linear(x, weight_);
        auto* const values = y.data_ptr<float>();
        for (std::int64_t i = 0; i < y.numel(); ++i) values[i] *= 0.5F;
        at::Tensor t = at::exp(y);
        const at::Tensor u = at::tanh(t + 1.0);
        at::Tensor z = at::sin(y);
        t = at::Tensor();
        if (odd) z = z.cos();
        return at::linear(u + z, weight_);
      },
      [] {});
}

// What goes was proved from a tensor that is saved no more in this call.
TEST_F(LettingGoTraps, WhatWasReliedOnIsReleasedBefore) {
  at::Tensor outside;
  Layer::expect_plain_gradients(
      weight_,
      [&](const at::Tensor& x, bool odd) {
        const at::Tensor y = at::linear(x, weight_);
        auto* const values = y.data_ptr<float>();
        for (std::int64_t i = 0; i < y.numel(); ++i) values[i] *= 0.5F;
        outside = at::sin(y);  // saves it
        if (odd) outside = at::Tensor();
        at::Tensor t = at::exp(y);
        at::Tensor u = at::tanh(t + 1.0);
        t = at::Tensor();
        if (odd) u = u.cos();
        return at::linear(u, weight_);
      },
      [&] { outside = at::Tensor(); });
}

TEST_F(LettingGoTraps, AMaskThatIsChangedUnseenAfterItWasSaved) {
  Layer::expect_plain_gradients(
      weight_,
      [&](const at::Tensor& x, bool) {
        const at::Tensor mask = at::bernoulli(at::full({256, 64}, 0.7));
        const at::Tensor z = at::linear(x, weight_) * mask;
        auto* const values = mask.data_ptr<float>();
        for (std::int64_t i = 0; i < mask.numel(); ++i) values[i] = 1.0F - values[i];
        return at::linear(at::gelu(z), weight_);
      },
      [] {});
}

// A mask that two tensors save, of which the first goes inside the layer, in odd calls only.
at::Tensor mask_of_two(const at::Tensor& x, const at::Tensor& weight, bool odd, bool writes,
                       at::Tensor& outside) {
  const at::Tensor h = at::linear(x, weight);
  at::Tensor mask = at::bernoulli(at::full({256, 64}, 0.7));
  at::Tensor scratch = at::zeros_like(mask);
  at::Tensor first = h * mask;
  outside = odd ? at::Tensor() : first;
  first = at::Tensor();
  if (writes) (odd ? mask : scratch).variable_data().mul_(0.5);
  const at::Tensor z = at::sin(h) * mask;
  return at::linear(z, weight);
}

void expect_plain_gradients_of_two(const at::Tensor& weight, bool writes) {
  at::Tensor outside;
  Layer::expect_plain_gradients(
      weight,
      [&](const at::Tensor& x, bool odd) { return mask_of_two(x, weight, odd, writes, outside); },
      [&] { outside = at::Tensor(); });
}

TEST_F(LettingGoTraps, AMaskWhoseFirstSlotIsReleased) {
  expect_plain_gradients_of_two(weight_, /*writes=*/false);
}

TEST_F(LettingGoTraps, AMaskThatChangesAfterItsFirstSlotIsReleased) {
  expect_plain_gradients_of_two(weight_, /*writes=*/true);
}

}  // namespace
}  // namespace pudica::testing
