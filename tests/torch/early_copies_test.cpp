// Copies to the host that begin while a layer runs: they hold what the layer leaves, or count for
// nothing.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "torch/forwarding_engine.h"
#include "torch/frame.h"
#include "torch/host_tier.h"
#include "torch/meter.h"
#include "torch/offload_habit.h"

namespace pudica::testing {
namespace {

// A tier that tells what was asked of it, in order: the bytes of what is stored, fences.
class WatchedTier final : public hooks::HostTier {
 public:
  std::unique_ptr<hooks::HostCopy> store(const c10::Storage& storage) override {
    if (fails) throw std::runtime_error("injected: no pinned memory");
    log.push_back(static_cast<std::int64_t>(storage.nbytes()));
    return inner_->store(storage);
  }
  bool holds(const hooks::HostCopy& copy, const c10::Storage& storage) override {
    ++compared;
    return inner_->holds(copy, storage);
  }
  double fence() override {
    log.push_back(kFence);
    return inner_->fence();
  }
  c10::Storage load(const hooks::HostCopy& copy) override { return inner_->load(copy); }
  double arrive() override { return inner_->arrive(); }
  hooks::HostPool& pool() override { return inner_->pool(); }

  static constexpr std::int64_t kFence = -1;
  static constexpr std::int64_t kEnd = -2;  // the layer's function has returned
  std::vector<std::int64_t> log;
  std::int64_t compared = 0;
  bool fails = false;

 private:
  std::shared_ptr<hooks::HostTier> inner_ = hooks::make_simulated_host_tier({});
};

using Function = std::function<at::Tensor(const at::Tensor&)>;

// Calls of one class, one after another; the gradient of the last one's input.
class EarlyCopies : public ::testing::Test {
 protected:
  EarlyCopies() {
    hooks::install_engine();
    hooks::cpu_meter();
  }

  at::Tensor gradient(const Function& layer, const at::Tensor& input, bool offload = true) {
    const at::Tensor leaf = input.detach().clone().requires_grad_(true);
    hooks::FrameOptions options;
    if (offload) {
      options.host = host_;
      options.offload_habit = habit_;
    }
    host_->log.clear();
    auto frame = hooks::Frame::make(std::move(options));
    const at::Tensor out = frame->run_part(
        [&](const std::vector<at::Tensor>& in) {
          std::vector<at::Tensor> outputs{layer(in[0])};
          host_->log.push_back(WatchedTier::kEnd);
          return outputs;
        },
        {leaf}, {})[0];
    frame->finish();
    offloaded_ = frame->offloaded();
    frame.reset();
    torch::autograd::backward({out.sum()});
    EXPECT_EQ(host_->in_use_bytes(), 0);
    return leaf.grad();
  }

  [[nodiscard]] std::ptrdiff_t begun_early() const {
    const auto end = std::ranges::find(host_->log, WatchedTier::kEnd);
    return std::count_if(host_->log.begin(), end, [](std::int64_t bytes) { return bytes > 0; });
  }
  [[nodiscard]] std::ptrdiff_t begun() const {
    return std::ranges::count_if(host_->log, [](std::int64_t bytes) { return bytes > 0; });
  }

  std::shared_ptr<WatchedTier> host_ = std::make_shared<WatchedTier>();
  std::shared_ptr<hooks::OffloadHabit> habit_ = std::make_shared<hooks::OffloadHabit>();
  at::Tensor input_ = at::rand({64, 64});
  bool offloaded_ = false;
};

TEST_F(EarlyCopies, BeginAsTensorsAreSavedOnceAClassIsKnown) {
  const Function layer = [](const at::Tensor& x) {
    return x.sin().exp().sigmoid().cos().exp().sin().sum();
  };
  const at::Tensor expected = gradient(layer, input_, /*offload=*/false);
  EXPECT_TRUE(at::equal(expected, gradient(layer, input_)));
  EXPECT_EQ(begun_early(), 0) << "nothing is known";
  const std::ptrdiff_t copies = begun();
  ASSERT_GE(copies, 3);
  EXPECT_TRUE(at::equal(expected, gradient(layer, input_)));
  EXPECT_EQ(begun_early(), copies);
  EXPECT_EQ(begun(), copies) << "what holds what it should is not copied again";
  EXPECT_EQ(host_->compared, copies);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(expected, gradient(layer, input_)));
  EXPECT_EQ(begun_early(), copies);
  EXPECT_EQ(host_->compared, copies) << "compared once";
  EXPECT_TRUE(offloaded_);
}

// Autograd does not see a write through `.data`; without offload the backward reads what it left.
TEST_F(EarlyCopies, AreGivenUpForAClassThatWritesUnseen) {
  const Function layer = [](const at::Tensor& x) {
    at::Tensor inner = x.exp();
    const at::Tensor out = inner.sin();
    inner.variable_data().mul_(2);
    return out.sum();
  };
  const at::Tensor expected = gradient(layer, input_, /*offload=*/false);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(expected, gradient(layer, input_))) << i;
  EXPECT_EQ(begun_early(), 0) << "it was seen to write";
}

// Comparing once a class is no proof for the calls after it.
TEST_F(EarlyCopies, ALaterCallThatWritesUnseenIsNotServedByWhatWasSaved) {
  bool writes = false;
  const Function layer = [&writes](const at::Tensor& x) {
    at::Tensor inner = x.exp();
    const at::Tensor out = inner.sin().exp();
    if (writes) inner.variable_data().mul_(2);
    return out.sum();
  };
  for (int i = 0; i < 4; ++i) gradient(layer, input_);
  ASSERT_GT(begun_early(), 0);
  writes = true;
  const at::Tensor expected = gradient(layer, input_, /*offload=*/false);
  EXPECT_TRUE(at::equal(expected, gradient(layer, input_)));
  EXPECT_GT(begun(), begun_early()) << "copied when the layer ended";
  EXPECT_TRUE(offloaded_);
}

TEST_F(EarlyCopies, WritesInsideOfListsAndByOutArgumentsAreSeen) {
  int kind = 0;
  const Function layer = [&kind](const at::Tensor& x) {
    at::Tensor inner = x.exp();
    const at::Tensor out = inner.sin().exp();
    at::Tensor unseen = inner.variable_data();
    if (kind == 1) at::_foreach_mul_({unseen}, 2);
    if (kind == 2) at::mul_out(unseen, x.variable_data(), x.variable_data());
    if (kind == 3) unseen.view({-1}).slice(0, 0, 5).copy_(at::ones({5}));
    return out.sum();
  };
  for (int i = 0; i < 4; ++i) gradient(layer, input_);
  for (kind = 1; kind <= 3; ++kind) {
    const at::Tensor expected = gradient(layer, input_, /*offload=*/false);
    EXPECT_TRUE(at::equal(expected, gradient(layer, input_))) << kind;
    EXPECT_GT(begun_early(), 0) << kind;
  }
}

// What was copied when it was saved first is no better for having been saved again.
TEST_F(EarlyCopies, AWriteBetweenTwoSavesOfATensorCountsForTheFirst) {
  const Function plain = [](const at::Tensor& x) {
    const at::Tensor y = x.exp();
    return y.sigmoid().sum();
  };
  for (int i = 0; i < 4; ++i) gradient(plain, input_);
  ASSERT_GT(begun_early(), 0);
  const Function writes = [](const at::Tensor& x) {
    const at::Tensor y = x.exp();
    y.variable_data().mul_(2);
    { const at::Tensor unused = y.sin(); }
    return y.sum();
  };
  const at::Tensor expected = gradient(writes, input_, /*offload=*/false);
  EXPECT_TRUE(at::equal(expected, gradient(writes, input_)));
}

TEST_F(EarlyCopies, AClassWithABatchNormHasThemToo) {
  at::Tensor mean = at::zeros({64});
  at::Tensor variance = at::ones({64});
  const Function layer = [&](const at::Tensor& x) {
    const at::Tensor y = x.sin().exp();
    return at::batch_norm(y, {}, {}, mean, variance, /*training=*/true, 0.1, 1e-5,
                          /*cudnn_enabled=*/false)
        .sigmoid()
        .sum();
  };
  const at::Tensor expected = gradient(layer, input_, /*offload=*/false);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(at::equal(expected, gradient(layer, input_))) << i;
  EXPECT_GT(begun_early(), 0);
  EXPECT_EQ(begun(), begun_early());
}

TEST_F(EarlyCopies, FollowCallsThatSaveOtherTensors) {
  const auto layer_of = [](int sines) {
    return [sines](const at::Tensor& x) {
      at::Tensor y = x;
      for (int i = 0; i < sines; ++i) y = y.sin();
      const at::Tensor held = y.exp();
      return held.sigmoid().sum();
    };
  };
  for (const int sines : {2, 2, 3, 1, 3, 3, 3}) {
    const at::Tensor expected = gradient(layer_of(sines), input_, /*offload=*/false);
    EXPECT_TRUE(at::equal(expected, gradient(layer_of(sines), input_))) << sines;
  }
  EXPECT_GT(begun_early(), 0);
}

TEST_F(EarlyCopies, OfWhatIsLetGoInTheLayerAreDropped) {
  const Function layer = [](const at::Tensor& x) {
    { const at::Tensor unused = x.exp().sin().exp(); }
    return x.cos().exp().sin().sum();
  };
  const at::Tensor expected = gradient(layer, input_, /*offload=*/false);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(at::equal(expected, gradient(layer, input_)));
  // Slots that the first call left empty are another call's, where nothing is let go.
  const Function keeps = [](const at::Tensor& x) {
    return x.exp().sin().exp().sum() + x.cos().exp().sin().sum();
  };
  for (int i = 0; i < 2; ++i) gradient(keeps, input_);
  EXPECT_TRUE(at::equal(expected, gradient(layer, input_)));
  const auto end = std::ranges::find(host_->log, WatchedTier::kEnd);
  EXPECT_GT(std::count(host_->log.begin(), end, WatchedTier::kFence), 0)
      << "nothing may come in its place while it is copied";
}

// Saving a tensor is a part of the user's forward.
TEST_F(EarlyCopies, ThatCannotBeginLeaveTheForwardAlone) {
  const Function layer = [](const at::Tensor& x) { return x.sin().exp().sigmoid().cos().sum(); };
  for (int i = 0; i < 3; ++i) gradient(layer, input_);
  const Function failing = [&](const at::Tensor& x) {
    host_->fails = true;
    const at::Tensor out = layer(x);
    host_->fails = false;
    return out;
  };
  const at::Tensor expected = gradient(layer, input_, /*offload=*/false);
  EXPECT_TRUE(at::equal(expected, gradient(failing, input_)));
  EXPECT_TRUE(offloaded_) << "copied when the layer ended";
}

TEST_F(EarlyCopies, ALayerThatThrowsGivesThePlaceBack) {
  const Function layer = [](const at::Tensor& x) {
    return x.sin().exp().sigmoid().cos().exp().sin().sum();
  };
  for (int i = 0; i < 3; ++i) gradient(layer, input_);
  auto frame = hooks::Frame::make({.host = host_, .offload_habit = habit_});
  const at::Tensor leaf = input_.clone().requires_grad_(true);
  at::Tensor survives;
  EXPECT_THROW(frame->run_part(
                   [&](const std::vector<at::Tensor>& in) -> std::vector<at::Tensor> {
                     survives = in[0].sin().exp();
                     EXPECT_GT(host_->in_use_bytes(), 0);
                     throw std::runtime_error("injected");
                   },
                   {leaf}, {}),
               std::runtime_error);
  EXPECT_EQ(host_->in_use_bytes(), 0);
}

}  // namespace
}  // namespace pudica::testing
