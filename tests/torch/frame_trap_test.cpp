// The traps of non-reentrant recompute and of revoking, one test each.
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/forwarding_engine.h"
#include "torch/meter.h"
#include "torch/toy_model.h"

namespace pudica::testing {
namespace {

using hooks::Frame;
using hooks::FrameFunction;
using hooks::FrameOptions;
using hooks::Registry;

class FrameTraps : public ::testing::Test {
 protected:
  FrameTraps() : registry_(std::make_shared<Registry>(hooks::cpu_meter())) {
    hooks::install_engine();
  }

  at::Tensor run(const FrameFunction& function, std::vector<at::Tensor> inputs, bool store,
                 const std::vector<at::Tensor>& buffers = {}) {
    FrameOptions options;
    options.store = store;
    if (store) options.registry = registry_;
    auto frame = Frame::make(options);
    auto outputs = frame->run_part(function, inputs, buffers);
    frame->finish();
    return outputs[0];
  }

  std::shared_ptr<Registry> registry_;
  at::Tensor leaf_ = at::randn({8, 16}).requires_grad_(true);
};

FrameFunction squares() {
  return [](const std::vector<at::Tensor>& x) {
    return std::vector<at::Tensor>{(x[0] * x[0]).exp() * x[0]};
  };
}

// Trap 1: bytes that others own too are not counted as freeable, and revoking frees what it says.
TEST_F(FrameTraps, RevokingFreesExactlyWhatIsOwnedByTheSlotsAlone) {
  const at::Tensor x = leaf_ * 1.0;
  at::Tensor kept_by_user;
  const at::Tensor y = run(
      [&](const std::vector<at::Tensor>& in) {
        kept_by_user = in[0].exp();
        return std::vector<at::Tensor>{kept_by_user.sin() * 2.0};
      },
      {x}, true);
  const std::int64_t before = hooks::cpu_meter().in_use_bytes();
  EXPECT_FALSE(registry_->revoke(1));  // exp's output is the user's too, sin's input is the same
  EXPECT_EQ(hooks::cpu_meter().in_use_bytes(), before);
}

// Trap 3: a frame holds its inputs; a change of an input after the region is an error, not a wrong
// gradient, and such a frame is not revoked.
TEST_F(FrameTraps, InputChangedInPlaceAfterTheLayerRaises) {
  for (const bool store : {true, false}) {
    at::Tensor x = leaf_ * 1.0;
    at::Tensor y = run(squares(), {x}, store);
    x.add_(1.0);
    if (store) {
      EXPECT_FALSE(registry_->revoke(1));
    }
    EXPECT_THROW(torch::autograd::backward({y.sum()}), c10::Error);
  }
}

// Trap 5: hooks switch autograd's version check off; ours replaces it, for parameters too.
TEST_F(FrameTraps, ParameterChangedBeforeBackwardRaises) {
  for (const bool store : {true, false}) {
    at::Tensor weight = at::randn({16, 16}).requires_grad_(true);
    const at::Tensor y = run(
        [weight](const std::vector<at::Tensor>& in) {
          return std::vector<at::Tensor>{at::matmul(in[0], weight).tanh()};
        },
        {leaf_ * 1.0}, store);
    {
      const at::NoGradGuard no_grad;
      weight.add_(0.5);
    }
    EXPECT_THROW(torch::autograd::backward({y.sum()}), c10::Error) << store;
  }
}

TEST_F(FrameTraps, InPlaceWritesInsideTheLayerAreReproduced) {
  const FrameFunction function = [](const std::vector<at::Tensor>& in) {
    at::Tensor h = in[0] * 2.0;
    h.add_(1.0).mul_(in[0]);
    return std::vector<at::Tensor>{(h.exp() * 1.0).add_(h)};
  };
  auto gradient = [&](auto&& forward) {
    leaf_.mutable_grad() = at::Tensor();
    torch::autograd::backward({forward().sum()});
    return leaf_.grad().clone();
  };
  const at::Tensor expected = gradient([&] { return function({leaf_ * 1.0})[0]; });
  EXPECT_TRUE(at::equal(expected, gradient([&] { return run(function, {leaf_ * 1.0}, true); })));
  EXPECT_TRUE(at::equal(expected, gradient([&] { return run(function, {leaf_ * 1.0}, false); })));
}

// Trap 4: weight casts made by a recompute must not outlive it.
TEST_F(FrameTraps, RecomputeLeavesNoWeightCastBehind) {
  at::Tensor weight = at::randn({16, 16}).requires_grad_(true);
  auto step = [&](bool frame) {
    const FrameFunction function = [&weight](const std::vector<at::Tensor>& in) {
      return std::vector<at::Tensor>{at::linear(in[0], weight).tanh()};
    };
    weight.mutable_grad() = at::Tensor();
    at::Tensor y;
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
    y = frame ? run(function, {leaf_ * 1.0}, false) : function({leaf_ * 1.0})[0];
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    torch::autograd::backward({y.to(at::kFloat).pow(2).sum()});
    const at::NoGradGuard no_grad;
    weight.sub_(weight.grad() * 0.5);
    return weight.detach().clone();
  };
  const at::Tensor start = weight.detach().clone();
  std::vector<at::Tensor> plain;
  for (int i = 0; i < 3; ++i) plain.push_back(step(false));
  {
    const at::NoGradGuard no_grad;
    weight.copy_(start);
  }
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(at::equal(plain[static_cast<std::size_t>(i)], step(true)));
}

// Trap 6: slots whose hook is gone are not filled again.
TEST_F(FrameTraps, MemoryOfAFinishedBackwardIsGone) {
  const std::int64_t before = hooks::cpu_meter().in_use_bytes();
  for (const bool store : {true, false}) {
    at::Tensor y = run(squares(), {leaf_ * 1.0}, store).sum();
    torch::autograd::backward({y});
    leaf_.mutable_grad() = at::Tensor();
  }
  EXPECT_EQ(hooks::cpu_meter().in_use_bytes(), before);
  EXPECT_EQ(registry_->listed_frames(), 0);
}

// A layer that does not reproduce itself fails its own step only if its tensors are gone.
TEST_F(FrameTraps, DeviatingRecomputeIsReportedAndKeptFramesAreUnharmed) {
  struct Log final : hooks::FrameObserver {
    void before_recompute(std::int32_t) noexcept override {}
    void after_recompute(std::int32_t) noexcept override {}
    void recovered(std::int32_t /*layer*/, const hooks::WorkTime& /*time*/) noexcept override {}
    void trial_passed(std::uint16_t, const hooks::BufferPlaces&, bool) noexcept override {}
    void trial_due(std::uint16_t, const hooks::BufferPlaces&) noexcept override {}
    void revoked(std::int32_t) noexcept override {}
    void recompute_deviated(std::int32_t, std::uint16_t,
                            const std::string& what) noexcept override {
      message = what;
    }
    std::string message;
  };
  for (const bool store : {true, false}) {
    const auto log = std::make_shared<Log>();
    int calls = 0;
    FrameOptions options;
    options.store = store;
    options.observer = log;
    auto frame = Frame::make(options);
    const at::Tensor y = frame->run_part(
        [&calls](const std::vector<at::Tensor>& in) {
          ++calls;
          at::Tensor h = in[0].exp();
          return std::vector<at::Tensor>{calls > 1 ? h : h.sin()};
        },
        {leaf_ * 1.0}, {})[0];
    frame->finish();
    if (store) {
      EXPECT_NO_THROW(torch::autograd::backward({y.sum()}));
      EXPECT_EQ(calls, 1);
    } else {
      EXPECT_THROW(torch::autograd::backward({y.sum()}), c10::Error);
      EXPECT_NE(log->message.find("in the forward"), std::string::npos) << log->message;
    }
  }
}

TEST_F(FrameTraps, BatchNormStatisticsAreUpdatedOnce) {
  const at::Tensor mean = at::zeros({16});
  const at::Tensor variance = at::ones({16});
  const FrameFunction function = [&](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{
        at::batch_norm(in[0], {}, {}, mean, variance, true, 0.1, 1e-5, false).exp()};
  };
  const at::Tensor y = run(function, {leaf_ * 1.0}, false, {mean, variance});
  const at::Tensor expected = mean.clone();
  torch::autograd::backward({y.sum()});
  EXPECT_GT(expected.abs().sum().item<double>(), 0.0);
  EXPECT_TRUE(at::equal(mean, expected));
}

// An exception of the layer's own in forward leaves no mode behind.
TEST_F(FrameTraps, ExceptionInTheForwardPassesThroughAndLeavesNothing) {
  EXPECT_THROW(run([](const std::vector<at::Tensor>&)
                       -> std::vector<at::Tensor> { throw std::runtime_error("the layer's own"); },
                   {leaf_}, true),
               std::runtime_error);
  const at::Tensor y = leaf_.exp();
  EXPECT_EQ(registry_->listed_frames(), 0);
  torch::autograd::backward({y.sum()});
}

TEST_F(FrameTraps, SlotsThatNobodyReadsAreReleasedWithTheGraph) {
  const std::int64_t before = hooks::cpu_meter().in_use_bytes();
  { const at::Tensor y = run(squares(), {leaf_ * 1.0}, true); }
  EXPECT_EQ(hooks::cpu_meter().in_use_bytes(), before);
  EXPECT_EQ(registry_->listed_frames(), 0);
}

}  // namespace
}  // namespace pudica::testing
